// The in-process fabric: matching of data messages, order of control messages.
#include "runtime/comm/in_process.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

Bytes bytes_of(const std::string& text) {
  Bytes bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

TEST(InProcessTransport, MatchesByTagWhateverTheOrder) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  auto b = fabric.make_transport(1);
  const Bytes one = bytes_of("one"), two = bytes_of("two!");
  Bytes got_one(3), got_two(4);
  const auto sent_one = a->send(1, 1, one);
  const auto wanted_two = b->receive(0, 2, got_two);
  EXPECT_FALSE(a->test(sent_one));
  EXPECT_FALSE(b->test(wanted_two));
  const auto sent_two = a->send(1, 2, two);
  const auto wanted_one = b->receive(0, 1, got_one);
  EXPECT_TRUE(b->test(wanted_one));
  EXPECT_TRUE(b->test(wanted_two));
  EXPECT_TRUE(a->test(sent_one));
  EXPECT_TRUE(a->test(sent_two));
  EXPECT_EQ(got_one, one);
  EXPECT_EQ(got_two, two);
  EXPECT_EQ(a->messages_sent(), 2);
  EXPECT_EQ(a->bytes_sent(), 7);
  EXPECT_EQ(a->completed(), 2U);
}

TEST(InProcessTransport, KeepsTheOrderOfMessagesWithOneTag) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  auto b = fabric.make_transport(1);
  const Bytes first = bytes_of("1"), second = bytes_of("2");
  Bytes got_first(1), got_second(1);
  a->send(1, 7, first);
  a->send(1, 7, second);
  EXPECT_TRUE(b->test(b->receive(0, 7, got_first)));
  EXPECT_TRUE(b->test(b->receive(0, 7, got_second)));
  EXPECT_EQ(got_first, first);
  EXPECT_EQ(got_second, second);
}

TEST(InProcessTransport, EmptyMessagesArrive) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  auto b = fabric.make_transport(1);
  const auto wanted = b->receive(0, 1, {});
  EXPECT_TRUE(a->test(a->send(1, 1, {})));
  EXPECT_TRUE(b->test(wanted));
}

TEST(InProcessTransport, AMessageOfAnotherLengthIsAFault) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  auto b = fabric.make_transport(1);
  const Bytes sent = bytes_of("abc");
  Bytes got(2);
  a->send(1, 5, sent);
  const auto wanted = b->receive(0, 5, got);
  EXPECT_THROW(b->test(wanted), RuntimeFault);
}

TEST(InProcessTransport, ADestroyedTransportTakesItsBuffersBack) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  {
    auto b = fabric.make_transport(1);
    Bytes gone(4);
    b->receive(0, 1, gone);
    b->send(0, 2, gone);
  }
  const Bytes sent = bytes_of("abcd");
  EXPECT_FALSE(a->test(a->send(1, 1, sent)));
  Bytes got(4);
  EXPECT_FALSE(a->test(a->receive(1, 2, got)));
}

TEST(InProcessTransport, WakesBothSidesOfACompletedTransfer) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  auto b = fabric.make_transport(1);
  int woken_a = 0, woken_b = 0;
  a->set_wakeup([&] { ++woken_a; });
  b->set_wakeup([&] { ++woken_b; });
  const Bytes sent = bytes_of("x");
  Bytes got(1);
  a->send(1, 1, sent);
  EXPECT_EQ(woken_a + woken_b, 0);
  b->receive(0, 1, got);
  EXPECT_EQ(woken_a, 1);
  EXPECT_EQ(woken_b, 1);
}

TEST(InProcessTransport, RefusesUnknownNodesAndRequests) {
  InProcessFabric fabric(2);
  auto a = fabric.make_transport(0);
  EXPECT_THROW(a->send(2, 1, {}), InternalError);
  EXPECT_THROW(a->send(1, Transport::kMaxTag, {}), InternalError);
  EXPECT_THROW(a->test(99), InternalError);
  EXPECT_THROW(fabric.make_transport(2), InternalError);
  EXPECT_THROW(InProcessFabric(0), InternalError);
}

TEST(InProcessControl, DeliversInOrderWithTheSendersAddress) {
  InProcessFabric fabric(2);
  constexpr int kMessages = 1000;
  std::vector<std::thread> senders;
  for (int32_t node = 0; node < 2; ++node) {
    senders.emplace_back([&fabric, node] {
      for (int i = 0; i < kMessages; ++i) {
        fabric.control(node).send(kController,
                                  {MessageKind::kAck, std::make_shared<Bytes>(bytes_of(std::to_string(i))), nullptr});
      }
    });
  }
  int next[2] = {0, 0};
  for (int i = 0; i < 2 * kMessages; ++i) {
    const auto envelope = fabric.control(kController).inbox().pop();
    ASSERT_TRUE(envelope && (envelope->from == 0 || envelope->from == 1));
    EXPECT_EQ(envelope->message.kind, MessageKind::kAck);
    EXPECT_EQ(*envelope->message.head, bytes_of(std::to_string(next[envelope->from]++)));
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(fabric.control(0).messages_sent(), kMessages);
  EXPECT_EQ(fabric.control(0).bytes_sent(), 10 + 90 * 2 + 900 * 3);
}

}  // namespace
}  // namespace dtorch
