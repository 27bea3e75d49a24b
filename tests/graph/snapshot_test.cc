// Orders and parts of snapshots on the wire, and who keeps what.
#include "runtime/graph/snapshot.h"

#include <gtest/gtest.h>

#include "tests/graph/samples.h"

namespace dtorch::testing_graph {
namespace {

TEST(Snapshot, OrdersKeepEveryField) {
  const SnapshotOrder sent = sample_snapshot();
  PieceEncoder encoder;
  const SnapshotOrder received = PieceDecoder(kNumOps, kNumDevices).decode_snapshot(encoder.encode(sent));
  EXPECT_EQ(received.epoch, sent.epoch);
  EXPECT_EQ(received.snapshot, sent.snapshot);
  EXPECT_EQ(received.action, sent.action);
  EXPECT_EQ(received.values, sent.values);
  EXPECT_EQ(received.places, sent.places);
  EXPECT_EQ(received.done_effects, sent.done_effects);
}

TEST(Snapshot, OrdersThatSayNotWhereValuesAreKeptAreRefused) {
  SnapshotOrder order = sample_snapshot();
  order.places = {};
  for (SnapshotAction action : {SnapshotAction::kStore, SnapshotAction::kRestore}) {
    order.action = action;
    EXPECT_THROW(PieceDecoder(kNumOps, kNumDevices).decode_snapshot(PieceEncoder().encode(order)), DecodeError);
  }
  order.values.clear();
  for (SnapshotAction action : {SnapshotAction::kCommit, SnapshotAction::kDrop}) {
    order.action = action;
    EXPECT_NO_THROW(PieceDecoder(kNumOps, kNumDevices).decode_snapshot(PieceEncoder().encode(order)));
  }
}

TEST(Snapshot, ToRestoreDefinesWhatANewReaderDoesNotKnow) {
  PieceEncoder encoder;
  encoder.encode(sample_piece());  // two meshes
  const size_t num_meshes = encoder.num_meshes();
  encoder.encode(sample_snapshot());
  EXPECT_GT(encoder.num_meshes(), num_meshes);
  // As it was before: what was sent later defines the same meshes again.
  PieceEncoder before = encoder.at(num_meshes);
  EXPECT_EQ(before.num_meshes(), num_meshes);
  SnapshotOrder empty = sample_snapshot();
  empty.values.clear();
  PieceDecoder decoder(kNumOps, kNumDevices);
  EXPECT_NO_THROW(decoder.decode_snapshot(before.encode(empty)));
  Piece later = sample_piece();
  later.new_specs.resize(1);
  later.graph_part = {};
  EXPECT_EQ(difference(later, decoder.decode(before.encode(later))), "");
}

TEST(Snapshot, WhatNodesSayOfCopiesKeepsEveryField) {
  for (const std::string& problem : {std::string(), std::string("memory is short")}) {
    const SnapshotStored received = decode_snapshot_stored(encode(SnapshotStored{2, 1, 9, 1000, 500, problem}));
    EXPECT_EQ(received.epoch, 2u);
    EXPECT_EQ(received.node, 1);
    EXPECT_EQ(received.snapshot, 9u);
    EXPECT_EQ(received.own_bytes, 1000);
    EXPECT_EQ(received.copy_bytes, 500);
    EXPECT_EQ(received.problem, problem);
  }
}

TEST(Snapshot, PartsKeepEveryField) {
  const SnapshotPart sent = sample_part();
  const SnapshotPart received = decode_snapshot_part(encode(sent, std::make_shared<const Bytes>(28)));
  EXPECT_EQ(received.epoch, sent.epoch);
  EXPECT_EQ(received.snapshot, sent.snapshot);
  EXPECT_EQ(received.owner, sent.owner);
  EXPECT_EQ(received.device, sent.device);
  EXPECT_EQ(received.is_copy, sent.is_copy);
  EXPECT_EQ(received.graph, sent.graph);
  EXPECT_EQ(received.slot, sent.slot);
  EXPECT_EQ(received.dtype, sent.dtype);
  EXPECT_EQ(received.local_shape, sent.local_shape);
  EXPECT_EQ(received.strides, sent.strides);
  EXPECT_EQ(received.lead, sent.lead);
  const SnapshotPart poisoned{
      .is_poisoned = true, .poison = "why", .poison_device = 3, .poison_sequence = 4, .poison_op_index = 5};
  const SnapshotPart again = decode_snapshot_part(encode(poisoned, nullptr));
  EXPECT_TRUE(again.is_poisoned);
  EXPECT_EQ(again.poison, "why");
  EXPECT_EQ(again.poison_device, 3);
  EXPECT_EQ(again.poison_sequence, 4u);
  EXPECT_EQ(again.poison_op_index, 5u);
}

TEST(Snapshot, PartsThatDontFitTheirBytesAreRefused) {
  const auto refused = [](auto change, size_t bytes = 28) {
    SnapshotPart part = sample_part();
    change(part);
    EXPECT_THROW(decode_snapshot_part(encode(part, std::make_shared<const Bytes>(bytes))), DecodeError);
  };
  refused([](SnapshotPart&) {}, 27);
  refused([](SnapshotPart& part) { part.lead = 7; });
  refused([](SnapshotPart& part) { part.lead = 64; });
  refused([](SnapshotPart& part) { part.strides = {int64_t{1} << 62}; });
  refused([](SnapshotPart& part) { part.strides = {1, 1}; });
  refused([](SnapshotPart& part) { part.owner = -1; });
}

// Four devices on nodes 0, 0, 1, 2; everybody's buddy is the next.
const SnapshotPlaces kPlaces{{0, 0, 1, 2}, {1, 2, 0}};

LiveValue value_of(const Placements& placements, bool is_ragged = false) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  return {1, 0, intern_meta({8, 8}, kFloat32, Layout(mesh, placements, 2)), is_ragged};
}

TEST(Snapshot, OnlyBoxesThatNoOtherNodeHasAreCopied) {
  const auto owners = [](const LiveValue& value) {
    std::vector<int64_t> devices;
    for (const SnapshotCopy& copy : copies_of({&value, 1}, kPlaces)) {
      devices.push_back(copy.owner);
      EXPECT_EQ(copy.to, kPlaces.buddies[static_cast<size_t>(kPlaces.node_of_device[static_cast<size_t>(copy.owner)])]);
    }
    return devices;
  };
  using Devices = std::vector<int64_t>;
  EXPECT_EQ(owners(value_of({Replicate(), Replicate()})), Devices());
  EXPECT_EQ(owners(value_of({Shard(0), Shard(1)})), (Devices{0, 1, 2, 3}));
  // Devices 0 and 1 are equal, on one node; 2 and 3 on two.
  EXPECT_EQ(owners(value_of({Shard(0), Replicate()})), (Devices{0}));
  EXPECT_EQ(owners(value_of({Replicate(), Shard(0)})), Devices());
  EXPECT_EQ(owners(value_of({Replicate(), Partial()})), (Devices{0, 1, 2, 3}));
  EXPECT_EQ(owners(value_of({Replicate(), Replicate()}, true)), (Devices{0, 1, 2, 3}));
}

TEST(Snapshot, DevicesOfALostNodeGetTheirPartsFromWhoHasThem) {
  const std::vector<bool> live = {true, false, true};
  const std::vector<int32_t> now = {0, 0, 2, 2};  // node 1's device goes to its buddy
  const auto moves = [&](const LiveValue& value) {
    SnapshotMoves result = moves_of({&value, 1}, kPlaces, now, live);
    EXPECT_TRUE(result.lost.empty());
    EXPECT_EQ(result.moves.size(), 1u);
    EXPECT_EQ(result.moves.front().device, 2);
    EXPECT_EQ(result.moves.front().to, 2);
    return result.moves.front();
  };
  const SnapshotMove copied = moves(value_of({Shard(0), Shard(1)}));
  EXPECT_TRUE(copied.from_copy);
  EXPECT_EQ(copied.from, 2);
  EXPECT_EQ(copied.owner, 2);
  const SnapshotMove near = moves(value_of({Replicate(), Replicate()}));  // also on node 0
  EXPECT_FALSE(near.from_copy);
  EXPECT_EQ(near.from, 2);
  EXPECT_EQ(near.owner, 3);
  const SnapshotMove far = moves(value_of({Replicate(), Shard(0)}));
  EXPECT_FALSE(far.from_copy);
  EXPECT_EQ(far.from, 0);
  EXPECT_EQ(far.owner, 0);
}

// Devices on nodes 0, 0, 1, 2; nodes 3 and 4 have none.
using Nodes = std::vector<int32_t>;
const SnapshotPlaces kTwoCopies{{0, 0, 1, 2}, {3, 4, 4, 3, 3, 4, kNoBuddy, kNoBuddy, kNoBuddy, kNoBuddy}, 2};

TEST(Snapshot, WithTwoCopiesEveryBoxIsOnThreeNodes) {
  using Copies = std::vector<std::pair<int64_t, int32_t>>;
  const auto copies = [](const LiveValue& value, const SnapshotPlaces& places) {
    Copies found;
    for (const SnapshotCopy& copy : copies_of({&value, 1}, places)) found.emplace_back(copy.owner, copy.to);
    return found;
  };
  EXPECT_EQ(copies(value_of({Replicate(), Replicate()}), kTwoCopies), Copies());  // on three as it is
  EXPECT_EQ(copies(value_of({Shard(0), Shard(1)}), kTwoCopies),
            (Copies{{0, 3}, {0, 4}, {1, 3}, {1, 4}, {2, 4}, {2, 3}, {3, 3}, {3, 4}}));
  // Devices 0 and 2 are equal, on nodes 0 and 1; 1 and 3 on nodes 0 and 2.
  EXPECT_EQ(copies(value_of({Replicate(), Shard(0)}), kTwoCopies), (Copies{{0, 3}, {1, 3}}));
  // A buddy that holds the box itself is none.
  const SnapshotPlaces next{{0, 0, 1, 2}, {1, 2, 2, 0, 0, 1}, 2};
  EXPECT_EQ(copies(value_of({Replicate(), Shard(0)}), next), (Copies{{0, 2}, {1, 1}}));
}

TEST(Snapshot, TwoThatHoldAValueMayBothBeLost) {
  const LiveValue value = value_of({Replicate(), Shard(0)});
  const SnapshotMoves moves = moves_of({&value, 1}, kTwoCopies, Nodes{3, 3, 4, 2}, {false, false, true, true, true});
  EXPECT_TRUE(moves.lost.empty());
  ASSERT_EQ(moves.moves.size(), 3u);
  EXPECT_EQ(moves.moves[0].device, 0);
  EXPECT_TRUE(moves.moves[0].from_copy);
  EXPECT_EQ(moves.moves[0].from, 3);
  EXPECT_EQ(moves.moves[1].device, 2);
  EXPECT_TRUE(moves.moves[1].from_copy);
  EXPECT_EQ(moves.moves[1].from, 3);  // who takes it over has none
  EXPECT_EQ(moves.moves[2].device, 1);
  EXPECT_FALSE(moves.moves[2].from_copy);
  EXPECT_EQ(moves.moves[2].from, 2);
  // Of what one node had, the copy that is there.
  const LiveValue own = value_of({Shard(0), Shard(1)});
  const SnapshotMoves from_other = moves_of({&own, 1}, kTwoCopies, Nodes{4, 4, 1, 2}, {false, true, true, false, true});
  EXPECT_TRUE(from_other.lost.empty());
  ASSERT_EQ(from_other.moves.size(), 2u);
  for (const SnapshotMove& move : from_other.moves) EXPECT_EQ(move.from, 4);
}

TEST(Snapshot, WhatNobodyHasIsNamed) {
  const std::vector<LiveValue> values = {value_of({Replicate(), Replicate()}), value_of({Shard(0), Shard(1)})};
  const std::vector<int32_t> now = {0, 0, 0, 0};
  const SnapshotMoves moves = moves_of(values, kPlaces, now, {true, false, false});
  EXPECT_EQ(moves.lost, std::vector<size_t>{1});
}

}  // namespace
}  // namespace dtorch::testing_graph
