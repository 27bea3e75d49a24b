// Damaged bytes: every truncation and many random changes of valid messages. A decoder either refuses or returns
// something valid; under AddressSanitizer and UBSan these tests also show that it reads nothing outside the message.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "runtime/graph/messages_generated.h"
#include "tests/graph/samples.h"

namespace dtorch {
namespace {

using namespace testing_graph;

std::vector<Message> all_messages() {
  std::vector<Message> messages = sample_messages();
  PieceEncoder encoder;
  messages.push_back(encoder.encode(sample_piece()));
  PieceEncoder other;
  messages.push_back(other.encode(PieceSource(0, 5).next(60)));
  PieceEncoder of_templates;
  messages.push_back(of_templates.encode(sample_template()));
  messages.push_back(encode(sample_replay(true)));
  messages.push_back(encode(half_replay()));
  return messages;
}

// True when the decoder refused; anything but a DecodeError fails the test.
bool is_refused(const Message& message) {
  try {
    decode_any(message);
    return false;
  } catch (const DecodeError&) {
    return true;
  }
}

TEST(HostileBytes, EveryTruncationIsRefused) {
  for (const Message& message : all_messages()) {
    for (size_t size = 0; size < message.head->size(); ++size) {
      const Bytes head(message.head->begin(), message.head->begin() + static_cast<std::ptrdiff_t>(size));
      // FlatBuffers pads the end, so the last bytes may be missing without loss.
      const bool refused = is_refused(with_head(message, head));
      EXPECT_TRUE(refused || size + 8 > message.head->size()) << static_cast<int>(message.kind) << " cut to " << size;
    }
  }
}

TEST(HostileBytes, RandomChangesNeverDoHarm) {
  const std::vector<Message> messages = all_messages();
  std::mt19937 random(11);
  size_t num_refused = 0;
  constexpr size_t kTries = 20000;
  for (size_t i = 0; i < kTries; ++i) {
    const Message& message = messages[i % messages.size()];
    Bytes head = *message.head;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % head.size();
      static constexpr uint8_t kEdges[] = {0, 1, 0x7F, 0x80, 0xFF};
      if (random() % 2 == 0) {
        head[at] = static_cast<std::byte>(random());
      } else {
        head[at] = static_cast<std::byte>(kEdges[random() % 5]);
      }
    }
    num_refused += is_refused(with_head(message, std::move(head)));
  }
  EXPECT_GT(num_refused, kTries / 10);
  EXPECT_LT(num_refused, kTries);
}

TEST(HostileBytes, AWordOfOnesOrZerosAnywhereNeverDoesHarm) {
  for (const Message& message : all_messages()) {
    for (size_t at = 0; at + 4 <= message.head->size(); at += 2) {
      for (uint32_t word : {0u, 1u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu, 0xFFFFFFF0u}) {
        Bytes head = *message.head;
        std::memcpy(head.data() + at, &word, sizeof word);
        is_refused(with_head(message, std::move(head)));
      }
    }
  }
}

TEST(HostileBytes, ADecoderSurvivesAStreamOfDamageBetweenGoodPieces) {
  PieceEncoder encoder;
  PieceDecoder decoder(kNumOps, kNumDevices);
  PieceSource source(1, 3);
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const Piece sent = source.next(20);
    const Message message = encoder.encode(sent);
    for (int k = 0; k < 10; ++k) {
      Bytes head = *message.head;
      head.resize(head.size() - 16 - random() % (head.size() - 16));
      EXPECT_THROW(decoder.decode(with_head(message, std::move(head))), DecodeError);
    }
    ASSERT_EQ(difference(sent, decoder.decode(message)), "");
  }
}

// A head made by hand around one meta.
Message piece_with_meta(const std::vector<int64_t>& shape, uint8_t dtype,
                        const std::vector<wire::Placement>& placements, const std::vector<int8_t>& order,
                        uint32_t mesh = 0, const std::vector<int64_t>& mesh_shape = {2, 2},
                        const std::vector<int64_t>& devices = {0, 1, 2, 3}) {
  flatbuffers::FlatBufferBuilder builder;
  auto kind = builder.CreateString("cpu");
  auto sizes = builder.CreateVector(mesh_shape);
  auto members = builder.CreateVector(devices);
  auto mesh_table = wire::CreateMesh(builder, kind, sizes, members);
  auto meshes = builder.CreateVector(&mesh_table, 1);
  const wire::Meta meta(mesh, dtype, static_cast<uint8_t>(shape.size()), static_cast<uint8_t>(order.size()));
  auto metas = builder.CreateVectorOfStructs(&meta, 1);
  auto dims = builder.CreateVector(shape);
  auto placed = builder.CreateVectorOfStructs(placements.data(), placements.size());
  auto ordered = builder.CreateVector(order);
  auto root = wire::CreatePiece(builder, 0, 0, 0, false, 0, meshes, metas, dims, placed, ordered);
  builder.Finish(root, "DT3d");
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {MessageKind::kPiece, std::make_shared<const Bytes>(data, data + builder.GetSize()), nullptr};
}

TEST(HostileBytes, MetadataThatCanNotBeAreRefused) {
  const std::vector<wire::Placement> plain = {{0, 0, 0}, {0, 0, 0}};
  ASSERT_FALSE(is_refused(piece_with_meta({4, 4}, 8, plain, {})));
  const std::vector<Message> bad = {
      piece_with_meta({4, -4}, 8, plain, {}),                                    // negative size
      piece_with_meta({int64_t{1} << 40, int64_t{1} << 40}, 8, plain, {}),       // product overflows
      piece_with_meta({0, int64_t{1} << 62}, 9, plain, {}),                      // strides overflow
      piece_with_meta({1, 1, 1, 1, 1, 1, 1, 1, 1}, 8, plain, {}),                // too many dims
      piece_with_meta({4, 4}, 10, plain, {}),                                    // dtype
      piece_with_meta({4, 4}, 8, {{0, 0, 0}}, {}),                               // a placement too few
      piece_with_meta({4, 4}, 8, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, {}),         // a placement too many
      piece_with_meta({4, 4}, 8, {{3, 0, 0}, {0, 0, 0}}, {}),                    // kind
      piece_with_meta({4, 4}, 8, {{2, 4, 0}, {0, 0, 0}}, {}),                    // reduction
      piece_with_meta({4, 4}, 8, {{1, 0, 2}, {0, 0, 0}}, {}),                    // dim
      piece_with_meta({4, 4}, 8, {{1, 0, -1}, {0, 0, 0}}, {}),                   // dim
      piece_with_meta({4, 4}, 8, {{0, 0, 1}, {0, 0, 0}}, {}),                    // a dim without Shard
      piece_with_meta({4, 4}, 8, {{1, 0, 0}, {1, 0, 0}}, {0, 0}),                // axis twice
      piece_with_meta({4, 4}, 8, {{1, 0, 0}, {1, 0, 0}}, {0, 2}),                // unknown axis
      piece_with_meta({4, 4}, 8, {{1, 0, 0}, {1, 0, 0}}, {0, 1, 0}),             // too long
      piece_with_meta({4, 4}, 8, plain, {}, 1),                                  // unknown mesh
      piece_with_meta({4, 4}, 8, plain, {}, 0, {2, 3}),                          // mesh shape
      piece_with_meta({4, 4}, 8, plain, {}, 0, {2, -2}),                         // mesh shape
      piece_with_meta({4, 4}, 8, plain, {}, 0, {2, 2}, {0, 1, 2, kNumDevices}),  // unknown device
      piece_with_meta({4, 4}, 8, plain, {}, 0, {2, 2}, {0, 1, 2, 2}),            // device twice
      piece_with_meta({4, 4}, 8, plain, {}, 0, {int64_t{1} << 62, 4, 1}),        // product overflows
      piece_with_meta({4, 4}, 8, plain, {}, 0, {1, 1, 1, 1, 1, 1, 1}, {0}),      // too many axes
  };
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_TRUE(is_refused(bad[i])) << i;
}

// A head made by hand of one mesh, one scalar on it, and these specs.
Message piece_with_specs(const std::vector<wire::Spec>& specs, const std::vector<uint32_t>& operands,
                         const std::vector<uint8_t>& attributes) {
  flatbuffers::FlatBufferBuilder builder;
  auto kind = builder.CreateString("cpu");
  auto sizes = builder.CreateVector(std::vector<int64_t>{1});
  auto members = builder.CreateVector(std::vector<int64_t>{0});
  auto mesh_table = wire::CreateMesh(builder, kind, sizes, members);
  auto meshes = builder.CreateVector(&mesh_table, 1);
  const wire::Meta scalar(0, 8, 0, 0);
  const wire::Placement replicated(0, 0, 0);
  auto metas = builder.CreateVectorOfStructs(&scalar, 1);
  auto placed = builder.CreateVectorOfStructs(&replicated, 1);
  auto listed = builder.CreateVectorOfStructs(specs.data(), specs.size());
  auto numbers = builder.CreateVector(operands);
  auto bytes = builder.CreateVector(attributes);
  auto root = wire::CreatePiece(builder, 0, 0, 0, false, 0, meshes, metas, 0, placed, 0, listed, numbers, bytes);
  builder.Finish(root, "DT3d");
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return {MessageKind::kPiece, std::make_shared<const Bytes>(data, data + builder.GetSize()), nullptr};
}

TEST(HostileBytes, SpecsThatDoNotFitTheirPartsAreRefused) {
  const wire::Spec first(0, 2, 1, 1, 1), second(1, 1, 1, 0, 1);  // number, attribute bytes, operator, inputs, outputs
  ASSERT_FALSE(is_refused(piece_with_specs({first, second}, {0, 0, 0}, {1, 2, 3})));
  const std::vector<Message> bad = {
      piece_with_specs({first, second}, {0, 0}, {1, 2, 3}),        // an operand is missing
      piece_with_specs({first, second}, {0, 0, 0, 0}, {1, 2, 3}),  // one too many
      piece_with_specs({first, second}, {0, 1, 0}, {1, 2, 3}),     // without metadata
      piece_with_specs({first, second}, {0, 0, 0}, {1, 2}),        // attributes are missing
      piece_with_specs({first, second}, {0, 0, 0}, {1, 2, 3, 4}),  // too many
      piece_with_specs({}, {0}, {}),
      piece_with_specs({}, {}, {1}),
      piece_with_specs({wire::Spec(0, 0xFFFFFFFF, 1, 0, 0)}, {}, {1}),
      piece_with_specs({wire::Spec(0, 0, 1, 0xFFFF, 0xFFFF)}, {0}, {}),
      piece_with_specs({wire::Spec(0, 0, kNumOps, 0, 0)}, {}, {}),
      piece_with_specs({wire::Spec(0xFFFFFFFF, 0, 1, 0, 0)}, {}, {}),
  };
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_TRUE(is_refused(bad[i])) << i;
}

TEST(HostileBytes, ManyTablesThatShareOneVectorAreRefused) {
  std::vector<int64_t> devices(kNumDevices);
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int64_t>(i);
  flatbuffers::FlatBufferBuilder builder;
  auto kind = builder.CreateString("cpu");
  auto sizes = builder.CreateVector(std::vector<int64_t>{kNumDevices});
  auto members = builder.CreateVector(devices);
  const std::vector<flatbuffers::Offset<wire::Mesh>> same(1000, wire::CreateMesh(builder, kind, sizes, members));
  auto meshes = builder.CreateVector(same);
  builder.Finish(wire::CreatePiece(builder, 0, 0, 0, false, 0, meshes), "DT3d");
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  EXPECT_TRUE(
      is_refused({MessageKind::kPiece, std::make_shared<const Bytes>(data, data + builder.GetSize()), nullptr}));
}

}  // namespace
}  // namespace dtorch
