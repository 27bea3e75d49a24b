// Failed sources, what is sent, what is shared: the parts of a transfer that values don't show.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/base/error.h"
#include "tests/comm/transfer_cluster.h"

namespace dtorch {
namespace {

const TensorMeta* meta(const DeviceMesh& mesh, const Shape& shape, const Placements& placements) {
  return intern_meta(shape, kFloat32, Layout(mesh, placements, shape.ndim()));
}

NativeTensor filled(const Shape& shape, float value) {
  NativeTensor tensor = NativeTensor::empty(shape, kFloat32);
  std::fill_n(reinterpret_cast<float*>(tensor.data()), tensor.num_elements(), value);
  return tensor;
}

// Runs one exchange in which `failed` has no value.
std::map<int64_t, Delivery> run_poisoned(const TensorMeta* from, const TensorMeta* to, int32_t num_nodes,
                                         int64_t failed, const std::string& text, FoldOrder order = FoldOrder::kMesh,
                                         const DirectParts& direct = {}) {
  Cluster cluster(4, num_nodes);
  Exchange exchange(from, to, cluster.binding(), order, direct);
  for (int64_t device : from->layout.mesh().devices()) {
    if (device == failed)
      exchange.set_error(device, text);
    else
      exchange.set_value(device, filled(from->layout.local_shape(from->global_shape, device), 1));
  }
  cluster.submit(exchange, 1);
  for (int32_t node = 0; node < num_nodes; ++node) cluster.make_ready(exchange, node);
  EXPECT_TRUE(cluster.wait()) << "a poisoned source must not leave anybody waiting";
  return exchange.deliveries();
}

TEST(Poison, ReachesEveryDeviceThatGathersAFailedSource) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  for (int32_t num_nodes : {1, 2, 4}) {
    const auto got = run_poisoned(meta(mesh, {8, 3}, {Shard(0)}), meta(mesh, {8, 3}, {Replicate()}), num_nodes, 1,
                                  "kernel exploded");
    ASSERT_EQ(got.size(), 4U);
    for (const auto& [device, delivery] : got) EXPECT_EQ(delivery.error, "kernel exploded") << device;
  }
}

TEST(Poison, CrossesStages) {
  // A reduction of 2 axes of different kinds: two folds and a gather.
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  const TensorMeta* from = meta(mesh, {8, 4}, {Partial(kSum), Partial(kMax)});
  const TensorMeta* to = meta(mesh, {8, 4}, {Replicate(), Replicate()});
  ASSERT_GE(make_redistribute_plan(from, to).stages.size(), 2U);
  for (int32_t num_nodes : {1, 2, 4}) {
    for (const auto& [device, delivery] : run_poisoned(from, to, num_nodes, 2, "lost"))
      EXPECT_EQ(delivery.error, "lost") << device;
  }
}

TEST(Poison, OfOneOfSeveralThatANodeFoldsReachesTheSum) {
  const DeviceMesh mesh("cpu", {4}, {2, 0, 1, 3});
  for (int64_t failed = 0; failed < 4; ++failed) {
    for (const Shape& shape : {Shape{8}, Shape{}}) {
      const auto got = run_poisoned(meta(mesh, shape, {Partial(kSum)}), meta(mesh, shape, {Replicate()}), 2, failed,
                                    "lost", FoldOrder::kByNode);
      for (const auto& [device, delivery] : got) EXPECT_EQ(delivery.error, "lost") << device << ", failed " << failed;
    }
  }
}

// Those that haven't failed still send their large parts, which nobody takes.
TEST(Poison, OfLargePartsLeavesNobodyWaiting) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  for (const Placement& from : {Placement(Partial(kSum)), Placement(Shard(0))}) {
    for (int32_t num_nodes : {2, 3, 4}) {
      for (int64_t failed = 0; failed < 4; ++failed) {
        const auto got = run_poisoned(meta(mesh, {64, 3}, {from}), meta(mesh, {64, 3}, {Replicate()}), num_nodes,
                                      failed, "lost", FoldOrder::kMesh, kTinyChunks);
        for (const auto& [device, delivery] : got) EXPECT_EQ(delivery.error, "lost") << device;
      }
    }
  }
}

TEST(Poison, LeavesAloneWhatDoesNotDependOnIt) {
  const DeviceMesh first("cpu", {2}, {0, 1});
  const DeviceMesh second("cpu", {2}, {2, 3});
  const auto got = run_poisoned(meta(first, {4}, {Shard(0)}), meta(second, {4}, {Shard(0)}), 4, 0, "lost");
  EXPECT_EQ(got.at(2).error, "lost");
  EXPECT_EQ(got.at(3).error, "");
  EXPECT_EQ(got.at(3).bytes.size(), 8U);
}

TEST(Poison, ALongTextIsCutToTheMessage) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const std::string text(100'000, 'x');
  const auto got = run_poisoned(meta(mesh, {4}, {Shard(0)}), meta(mesh, {4}, {Replicate()}), 4, 0, text);
  EXPECT_EQ(got.at(0).error, text);  // never sent
  EXPECT_GE(got.at(3).error.size(), 100U);
  EXPECT_EQ(got.at(3).error, text.substr(0, got.at(3).error.size()));
}

TEST(Poison, ASourceWithoutATextStillFails) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const auto got = run_poisoned(meta(mesh, {4}, {Shard(0)}), meta(mesh, {4}, {Replicate()}), 2, 3, "");
  for (const auto& [device, delivery] : got) EXPECT_NE(delivery.error, "") << device;
}

TEST(Fold, GoesInTheOrderOfTheMeshWhereverDevicesAre) {
  const DeviceMesh mesh("cpu", {4}, {3, 1, 0, 2});
  const std::map<int64_t, float> values{{3, 1e8F}, {1, -1e8F}, {0, 1.F}, {2, 0.F}};  // reversed, the sum is 0
  for (int32_t num_nodes : {1, 2, 3, 4}) {
    Cluster cluster(4, num_nodes);
    Exchange exchange(meta(mesh, {5}, {Partial(kSum)}), meta(mesh, {5}, {Replicate()}), cluster.binding());
    for (const auto& [device, value] : values) exchange.set_value(device, filled({5}, value));
    cluster.submit(exchange, 1);
    for (int32_t node = 0; node < num_nodes; ++node) cluster.make_ready(exchange, node);
    EXPECT_TRUE(cluster.wait());
    for (const auto& [device, delivery] : exchange.deliveries()) {
      float result[5];
      ASSERT_EQ(delivery.bytes.size(), sizeof(result));
      std::memcpy(result, delivery.bytes.data(), sizeof(result));
      for (float element : result) EXPECT_EQ(element, 1.F) << "device " << device << " of " << num_nodes << " nodes";
    }
  }
}

TEST(NodePlan, ABoxGoesOnceToANodeHoweverManyDevicesTakeIt) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const TensorMeta* from = meta(mesh, {8, 1000}, {Shard(0)});
  Cluster cluster(4, 2);
  Exchange exchange(from, meta(mesh, {8, 1000}, {Replicate()}), cluster.binding());
  for (int64_t device = 0; device < 4; ++device)
    exchange.set_value(device, filled({2, 1000}, static_cast<float>(device)));
  cluster.submit(exchange, 1);
  for (int32_t node : {0, 1}) cluster.make_ready(exchange, node);
  EXPECT_TRUE(cluster.wait());
  EXPECT_EQ(cluster.messages_sent(), 2);
  EXPECT_EQ(cluster.bytes_sent(), 2 * (64 + 4 * 1000 * 4));
}

// Each sum is folded where its last stage wants it, and devices of a node share one value.
TEST(NodePlan, TheResultOfAStageLiesInTheNextOnes) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const RedistributePlan plan =
      make_redistribute_plan(meta(mesh, {8, 3}, {Partial(kSum)}), meta(mesh, {8, 3}, {Replicate()}));
  ASSERT_EQ(plan.stages.size(), 2U);
  const auto node = lower_plan(plan, block_binding(4, 2), 1);
  const std::vector<Box> places = node->stages[0].places_in_next;
  ASSERT_EQ(places.size(), 2U);
  EXPECT_EQ(places[0].offset, (Shape{4, 0}));
  EXPECT_EQ(places[1].offset, (Shape{6, 0}));
  EXPECT_EQ(places[1].size, (Shape{2, 3}));
  ASSERT_EQ(node->stages[1].destinations.size(), 2U);
  EXPECT_EQ(node->stages[1].destinations[1].same_as, 0U);
}

TEST(NodePlan, BothEndsOfAMessageAgreeOnItsParts) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2});
  const DeviceBinding binding = block_binding(4, 3);
  const RedistributePlan plan =
      make_redistribute_plan(meta(mesh, {5, 7}, {Partial(kSum), Shard(1)}), meta(mesh, {5, 7}, {Shard(1), Shard(0)}));
  std::vector<std::shared_ptr<const NodePlan>> nodes;
  for (int32_t node = 0; node < 3; ++node) nodes.push_back(lower_plan(plan, binding, node));
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (int32_t a = 0; a < 3; ++a) {
      for (const auto& [b, parts] : nodes[static_cast<size_t>(a)]->stages[stage].sends) {
        const NodePlan::NodeStage& other = nodes[static_cast<size_t>(b)]->stages[stage];
        ASSERT_TRUE(other.receives.contains(a));
        EXPECT_EQ(nodes[static_cast<size_t>(a)]->stages[stage].send_bytes.at(b), other.receive_bytes.at(a));
        const auto& expected = other.receives.at(a);
        ASSERT_EQ(parts.size(), expected.size());
        for (size_t i = 0; i < parts.size(); ++i) {
          EXPECT_EQ(parts[i].source, expected[i].source);
          EXPECT_EQ(parts[i].box, expected[i].box);
          EXPECT_EQ(parts[i].offset, expected[i].offset);
        }
      }
    }
  }
}

TEST(NodePlan, RefusesAPlanThatDoesNothing) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const TensorMeta* same = meta(mesh, {4}, {Shard(0)});
  EXPECT_THROW(lower_plan(make_redistribute_plan(same, same), block_binding(4, 2), 0), InternalError);
}

TEST(TransferTag, DiffersBetweenWhatIsUnderWayTogetherAndFitsMpi) {
  EXPECT_NE(transfer_tag(1, 7, 0), transfer_tag(1, 7, 1));
  EXPECT_NE(transfer_tag(1, 7, 0), transfer_tag(1, 8, 0));
  EXPECT_NE(transfer_tag(1, 7, 0), transfer_tag(2, 7, 0));
  EXPECT_LT(transfer_tag(0xffffffff, ~uint64_t{0}, 15), Transport::kMaxTag);
}

}  // namespace
}  // namespace dtorch
