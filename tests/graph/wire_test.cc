// The small control messages: round trips, packing, and what decoders refuse.
#include <gtest/gtest.h>

#include <limits>

#include "tests/graph/samples.h"

namespace dtorch {
namespace {

using namespace testing_graph;

SharedBytes bytes_of(size_t size) { return std::make_shared<const Bytes>(size); }

TEST(Wire, HelloKeepsEveryField) {
  const Hello sent{2, "node\xC3\xA9", 4711, "DTorch 0.1", 0xFEDCBA9876543210u, 8};
  const Hello received = decode_hello(encode(sent));
  EXPECT_EQ(received.node, sent.node);
  EXPECT_EQ(received.host, sent.host);
  EXPECT_EQ(received.pid, sent.pid);
  EXPECT_EQ(received.versions, sent.versions);
  EXPECT_EQ(received.registry_hash, sent.registry_hash);
  EXPECT_EQ(received.num_cores, sent.num_cores);
}

TEST(Wire, ConfigKeepsEveryField) {
  const Config sent{5, {0, 1, 1}, {0, 0, 1}, 2, false, false, 6, 0.25, 8, {}, 3, true};
  const Config received = decode_config(encode(sent));
  EXPECT_EQ(received.epoch, sent.epoch);
  EXPECT_EQ(received.node_of_device, sent.node_of_device);
  EXPECT_EQ(received.slot_of_device, sent.slot_of_device);
  EXPECT_EQ(received.num_nodes, sent.num_nodes);
  EXPECT_EQ(received.check_metadata, sent.check_metadata);
  EXPECT_EQ(received.ordered_reductions, sent.ordered_reductions);
  EXPECT_EQ(received.threads_per_device, sent.threads_per_device);
  EXPECT_EQ(received.compute_streams, sent.compute_streams);
  EXPECT_EQ(received.device_graphs, sent.device_graphs);
  EXPECT_EQ(received.deadline_s, sent.deadline_s);
}

TEST(Wire, FeedsAndReadsCarryTheirBytesBeside) {
  const SharedBytes payload = bytes_of(48);
  const Message feed = encode(Feed{1, 99, 3}, payload);
  EXPECT_EQ(feed.payload, payload) << "the bytes were copied";
  EXPECT_EQ(decode_feed(feed).feed, 99u);
  EXPECT_EQ(decode_feed(feed).num_uses, 3u);
  const Message read = encode(ReadData{1, 2, 77, Box{{0, 4}, {2, 3}}}, payload);
  const ReadData received = decode_read_data(read);
  EXPECT_EQ(read.payload, payload);
  EXPECT_EQ(received.node, 2);
  EXPECT_EQ(received.read, 77u);
  EXPECT_EQ(received.box, (Box{{0, 4}, {2, 3}}));
  EXPECT_EQ(decode_read_data(encode(ReadData{}, bytes_of(8))).box.ndim(), 0) << "a scalar";
  EXPECT_TRUE(decode_read_data(encode(ReadData{0, 0, 0, Box{{0}, {0}}}, nullptr)).box.empty());
}

TEST(Wire, QuestionsAndAnswersKeepEveryField) {
  const Inspect question = decode_inspect(encode(Inspect{.number = 9, .aspect = Aspect::kStatus}));
  EXPECT_EQ(question.number, 9u);
  EXPECT_EQ(question.aspect, Aspect::kStatus);
  const Answer sent = sample_answer();
  const Answer received = decode_answer(encode(sent));
  EXPECT_EQ(received.epoch, sent.epoch);
  EXPECT_EQ(received.node, sent.node);
  EXPECT_EQ(received.number, sent.number);
  EXPECT_EQ(received.clock_ns, sent.clock_ns);
  EXPECT_EQ(received.machine, sent.machine);
  EXPECT_EQ(received.devices, sent.devices);
  EXPECT_EQ(received.memory, sent.memory);
  ASSERT_EQ(received.profiles.size(), 1u);
  EXPECT_EQ(received.profiles[0].device, 2);
  EXPECT_EQ(received.profiles[0].window_ns, 1000);
  EXPECT_EQ(received.profiles[0].rows, sent.profiles[0].rows);
  ASSERT_EQ(received.tracks.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(received.tracks[i].device, sent.tracks[i].device);
    EXPECT_EQ(received.tracks[i].dropped, sent.tracks[i].dropped);
    EXPECT_EQ(received.tracks[i].events, sent.tracks[i].events);
  }
  EXPECT_EQ(received.num_transfers, sent.num_transfers);
  ASSERT_EQ(received.transfers.size(), sent.transfers.size());
  for (size_t i = 0; i < sent.transfers.size(); ++i) {
    EXPECT_EQ(received.transfers[i].place, sent.transfers[i].place);
    EXPECT_EQ(received.transfers[i].number, sent.transfers[i].number);
    EXPECT_EQ(received.transfers[i].phase, sent.transfers[i].phase);
    EXPECT_EQ(received.transfers[i].waits_for, sent.transfers[i].waits_for);
  }
}

TEST(Wire, AnswersThatCannotBeAreRefused) {
  const auto refused = [](auto change) {
    Answer answer = sample_answer();
    change(answer);
    EXPECT_THROW(decode_answer(encode(answer)), DecodeError);
  };
  refused([](Answer& a) { a.node = -1; });
  refused([](Answer& a) { a.devices[0].device = -1; });
  refused([](Answer& a) { a.devices[0].activity = static_cast<Activity>(3); });
  refused([](Answer& a) { a.transfers[0].phase = static_cast<TransferPhase>(3); });
  refused([](Answer& a) { a.num_transfers = 1; });
  refused([](Answer& a) { a.memory[0].peak_bytes = -1; });
  refused([](Answer& a) { a.memory[0].largest[0].storage_bytes = -1; });
  refused([](Answer& a) { a.profiles[0].rows[0].calls = -1; });
  refused([](Answer& a) { a.profiles[0].rows[0].moved_bytes = -1; });
  refused([](Answer& a) { a.tracks[0].device = -2; });
  refused([](Answer& a) { a.tracks[0].events[0].end_ns = 9; });
  refused([](Answer& a) { a.tracks[1].events[0].kind = static_cast<TraceKind>(5); });
  Message fewer = encode(sample_answer());
  fewer.payload = std::make_shared<const Bytes>(fewer.payload->size() - sizeof(TraceEvent));
  EXPECT_THROW(decode_answer(fewer), DecodeError);
  fewer.payload = nullptr;
  EXPECT_THROW(decode_answer(fewer), DecodeError);
  EXPECT_THROW(decode_inspect(encode(Inspect{.aspect = static_cast<Aspect>(0)})), DecodeError);
  EXPECT_THROW(decode_inspect(encode(Inspect{.aspect = static_cast<Aspect>(99)})), DecodeError);
}

TEST(Wire, AcksAndErrorsKeepEveryField) {
  Ack sent{1, 2, {3, uint64_t{1} << 63}, 4, 5, 6, 7, 8, {1, 3}, {5, 4}};
  sent.device_graphs = {9, 10, 11, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const Ack ack = decode_ack(encode(sent));
  EXPECT_EQ(ack.node, 2);
  EXPECT_EQ(ack.sequences, sent.sequences);
  EXPECT_EQ(ack.bytes_in_use, 4);
  EXPECT_EQ(ack.peak_bytes, 5);
  EXPECT_EQ(ack.kernels_run, 6);
  EXPECT_EQ(ack.data_bytes_sent, 7);
  EXPECT_EQ(ack.data_messages_sent, 8);
  EXPECT_EQ(ack.device_bytes_in_use, sent.device_bytes_in_use);
  EXPECT_EQ(ack.device_peak_bytes, sent.device_peak_bytes);
  EXPECT_EQ(ack.device_graphs, sent.device_graphs);
  const ErrorReport error = decode_error(encode(ErrorReport{1, 2, -1, 4, 5, "text"}));
  EXPECT_EQ(error.epoch, 1u);
  EXPECT_EQ(error.node, 2);
  EXPECT_EQ(error.device, -1);
  EXPECT_EQ(error.sequence, 4u);
  EXPECT_EQ(error.op_index, 5u);
  EXPECT_EQ(error.message, "text");
}

TEST(Wire, AnAckWhoseDevicesDontAddUpIsRefused) {
  Ack ack;
  ack.device_bytes_in_use = {1, 2};
  ack.device_peak_bytes = {3};
  EXPECT_THROW(decode_ack(encode(ack)), DecodeError);
  ack.device_bytes_in_use = {-1};
  EXPECT_THROW(decode_ack(encode(ack)), DecodeError);
}

TEST(Wire, TheEndKeepsCodeAndReason) {
  const Shutdown end = decode_shutdown(encode(Shutdown{-7, "because"}));
  EXPECT_EQ(end.exit_code, -7);
  EXPECT_EQ(end.reason, "because");
  EXPECT_EQ(decode_goodbye(encode_goodbye(12)), 12);
}

TEST(Wire, EveryMessageSurvivesPackingByteForByte) {
  PieceEncoder encoder;
  std::vector<Message> messages = sample_messages();
  messages.push_back(encoder.encode(sample_piece()));
  messages.push_back(encode(Feed{}, bytes_of(0)));
  for (const Message& sent : messages) {
    const Message received = unpack(pack(sent));
    EXPECT_EQ(received.kind, sent.kind);
    EXPECT_EQ(received.epoch, sent.epoch);
    EXPECT_EQ(*received.head, *sent.head);
    ASSERT_EQ(received.payload == nullptr, sent.payload == nullptr);
    EXPECT_TRUE(sent.payload == nullptr || *received.payload == *sent.payload);
    EXPECT_NO_THROW(decode_any(received));
  }
}

TEST(Wire, UnpackRefusesWhatPackDoesNotWrite) {
  const Bytes good = pack(encode_goodbye(1));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(unpack(std::span(good).first(size)), DecodeError) << size;
  }
  for (size_t at = 0; at < 16; ++at) {
    if (at >= 4 && at < 8) continue;  // the epoch
    Bytes bad = good;
    bad[at] ^= std::byte{0x80};
    EXPECT_THROW(unpack(bad), DecodeError) << at;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(unpack(longer), DecodeError);
}

TEST(Wire, ADecoderRefusesAMessageOfAnotherKind) {
  for (const Message& message : sample_messages()) {
    for (uint8_t kind = 1; kind <= static_cast<uint8_t>(MessageKind::kGoodbye); ++kind) {
      Message relabelled = message;
      relabelled.kind = static_cast<MessageKind>(kind);
      if (relabelled.kind == message.kind) continue;
      EXPECT_THROW(decode_any(relabelled), DecodeError);
    }
  }
  EXPECT_THROW(decode_ack(encode_goodbye(1)), DecodeError);
  EXPECT_THROW(decode_ack(Message{MessageKind::kAck, nullptr, nullptr}), DecodeError);
}

TEST(Wire, AnotherVersionOfTheWireFormIsNamed) {
  const Message message = encode_goodbye(1);
  Bytes head = *message.head;
  head[6] = std::byte{'9'};
  try {
    decode_goodbye(with_head(message, head));
    FAIL();
  } catch (const DecodeError& error) {
    EXPECT_NE(std::string(error.what()).find("another version"), std::string::npos) << error.what();
  }
}

TEST(Wire, RefusesFieldsThatCanNotBe) {
  const Config good{0, {0, 1}, {0, 0}, 2, true, true, 1, 1.0};
  EXPECT_NO_THROW(decode_config(encode(good)));
  const auto refused = [&](auto change) {
    Config bad = good;
    change(bad);
    EXPECT_THROW(decode_config(encode(bad)), DecodeError);
  };
  refused([](Config& c) { c.node_of_device[0] = 2; });
  refused([](Config& c) { c.node_of_device[0] = -1; });
  refused([](Config& c) { c.slot_of_device[1] = 2; });
  refused([](Config& c) { c.slot_of_device.pop_back(); });
  refused([](Config& c) { c.num_nodes = 0; });
  refused([](Config& c) { c.live_nodes = {0, 2}; });
  refused([](Config& c) { c.live_nodes = {1, 0}; });
  refused([](Config& c) { c.threads_per_device = 0; });
  refused([](Config& c) { c.compute_streams = 0; });
  refused([](Config& c) { c.compute_streams = 17; });
  refused([](Config& c) { c.deadline_s = -1; });
  refused([](Config& c) { c.deadline_s = std::numeric_limits<double>::quiet_NaN(); });
  EXPECT_THROW(decode_hello(encode(Hello{-1, "", 0, "", 0, 0})), DecodeError);
  EXPECT_THROW(decode_feed(encode(Feed{0, 0, 0}, nullptr)), DecodeError);
  EXPECT_THROW(decode_ack(encode(Ack{0, 0, {}, -1, 0, 0, 0, 0, {}, {}})), DecodeError);
  EXPECT_THROW(decode_error(encode(ErrorReport{0, 0, -2, 0, 0, ""})), DecodeError);
  EXPECT_THROW(decode_goodbye(encode_goodbye(-1)), DecodeError);
}

TEST(Wire, RefusesBoxesThatDoNotFitTheirData) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const auto refused = [](const Box& box, size_t bytes) {
    EXPECT_THROW(decode_read_data(encode(ReadData{0, 0, 0, box}, bytes == 0 ? nullptr : bytes_of(bytes))), DecodeError)
        << box.size.str();
  };
  refused({{0}, {3}}, 0);
  refused({{0}, {3}}, 10);
  refused({{0}, {3}}, 9);
  refused({{0}, {0}}, 4);
  refused({{0, 0}, {3}}, 12);
  refused({{-1}, {3}}, 12);
  refused({{0}, {-3}}, 12);
  refused({{huge}, {3}}, 12);
  refused({{0, 0}, {huge, huge}}, 12);
}

}  // namespace
}  // namespace dtorch
