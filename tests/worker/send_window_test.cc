// What is under way counts until nobody holds its message any more.
#include "runtime/worker/send_window.h"

#include <gtest/gtest.h>

#include <thread>

namespace dtorch::testing_worker {
namespace {

Message message_of(size_t head_bytes, size_t payload_bytes) {
  Message message{MessageKind::kSnapshotPart, std::make_shared<const Bytes>(head_bytes), nullptr};
  if (payload_bytes != 0) message.payload = std::make_shared<const Bytes>(payload_bytes);
  return message;
}

TEST(SendWindow, CountsAMessageUntilItsLastCopyIsGone) {
  const auto window = std::make_shared<SendWindow>(100);
  Message first = SendWindow::counted(window, message_of(10, 80));
  EXPECT_EQ(first.head->size(), 10u);
  EXPECT_TRUE(window->has_room());
  Message second = SendWindow::counted(window, message_of(10, 0));
  EXPECT_FALSE(window->has_room());
  Message to_another_node = second;
  second = {};
  EXPECT_FALSE(window->has_room());
  to_another_node = {};
  EXPECT_TRUE(window->has_room());
}

TEST(SendWindow, WhoWaitsGoesOnWhenThereIsRoom) {
  const auto window = std::make_shared<SendWindow>(100);
  Message message = SendWindow::counted(window, message_of(10, 100));
  bool had_room = false;
  std::thread waiting([&] { had_room = window->wait_for_room(); });
  message = {};
  waiting.join();
  EXPECT_TRUE(had_room);
}

TEST(SendWindow, NobodyWaitsOnceItIsClosed) {
  const auto window = std::make_shared<SendWindow>(100);
  const Message message = SendWindow::counted(window, message_of(10, 100));
  bool had_room = true;
  std::thread waiting([&] { had_room = window->wait_for_room(); });
  window->close();
  waiting.join();
  EXPECT_FALSE(had_room);
}

TEST(SendWindow, AMessageMayOutliveEverybodyElse) {
  auto window = std::make_shared<SendWindow>(100);
  const Message message = SendWindow::counted(window, message_of(10, 5));
  window.reset();
  EXPECT_EQ(message.head->size(), 10u);
}

}  // namespace
}  // namespace dtorch::testing_worker
