// Transfers over the in-process fabric: what every device gets, for all pairs of placements and any number of nodes.
#include "runtime/comm/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/comm/transfer_cluster.h"

namespace dtorch {
namespace {

constexpr int64_t kDevices = 4;
using Values = std::vector<double>;

int64_t element_at(const Shape& shape, const Box& box, int64_t i) {
  int64_t at = 0;
  int64_t stride = 1;
  for (int64_t dim = box.ndim() - 1; dim >= 0; --dim) {
    at += (box.offset[dim] + i % box.size[dim]) * stride;
    i /= box.size[dim];
    stride *= shape[dim];
  }
  return at;
}

// The device's part before any reduction, as numbers: the same on devices that hold the same. Whole numbers add up
// exactly.
double part_value(const TensorMeta& meta, int64_t mesh_index, int64_t element, bool whole_numbers) {
  const DeviceMesh& mesh = meta.layout.mesh();
  const Shape coordinate = mesh.coordinate_of_index(mesh_index);
  uint64_t seed = static_cast<uint64_t>(element) + 1;
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    if (meta.layout.placement(axis).is_partial()) seed = seed * 31 + static_cast<uint64_t>(coordinate[axis]) + 7;
  }
  seed = seed * 0x9e3779b97f4a7c15U >> 40;
  const double value = static_cast<double>(seed % 1000) - 500;
  return whole_numbers ? value * 4 : value / 7;
}

void store(DType dtype, double value, std::byte* at) {
  visit_dtype(dtype, [&]<class T>() {
    const T typed = static_cast<T>(value);
    std::memcpy(at, &typed, sizeof(T));
  });
}
double load(DType dtype, const std::byte* at) {
  return visit_dtype(dtype, [&]<class T>() {
    T typed;
    std::memcpy(&typed, at, sizeof(T));
    return static_cast<double>(typed);
  });
}

// The logical tensor that parts (whole-box values by mesh index; NaN where not held) stand for. All Partial axes have
// one kind.
Values logical_value(const TensorMeta& meta, const std::vector<Values>& parts) {
  const Layout& layout = meta.layout;
  Values result(static_cast<size_t>(meta.global_shape.num_elements()));
  std::vector<bool> seen(result.size());
  for (int64_t index = 0; index < layout.mesh().num_devices(); ++index) {
    const Shape coordinate = layout.mesh().coordinate_of_index(index);
    bool is_replica = false;
    double divisor = 1;
    ReduceOp reduce = kSum;
    for (int64_t axis = 0; axis < layout.mesh().num_axes(); ++axis) {
      const Placement& p = layout.placement(axis);
      is_replica |= p.is_replicate() && coordinate[axis] != 0;
      if (p.is_partial()) reduce = p.reduce;
      if (p.is_partial(kAvg)) divisor *= static_cast<double>(layout.mesh().shape()[axis]);
    }
    if (is_replica) continue;
    const Box box = layout.box_at(meta.global_shape, index);
    if (box.empty()) continue;
    for (int64_t i = 0; i < box.num_elements(); ++i) {
      const size_t at = static_cast<size_t>(element_at(meta.global_shape, box, i));
      const double value = parts[static_cast<size_t>(index)][at];
      double& sum = result[at];
      if (!seen[at])
        sum = reduce == kAvg ? value / divisor : value;
      else if (reduce == kMax)
        sum = std::max(sum, value);
      else if (reduce == kMin)
        sum = std::min(sum, value);
      else
        sum += value / divisor;
      seen[at] = true;
    }
  }
  return result;
}

std::vector<Values> fill_sources(Exchange& exchange, bool whole_numbers) {
  const TensorMeta& meta = *exchange.from();
  std::vector<Values> parts;
  for (int64_t index = 0; index < meta.layout.mesh().num_devices(); ++index) {
    const Box box = meta.layout.box_at(meta.global_shape, index);
    NativeTensor tensor = NativeTensor::empty(box.size, meta.dtype);
    Values& part = parts.emplace_back(static_cast<size_t>(meta.global_shape.num_elements()));
    for (int64_t i = 0; i < box.num_elements(); ++i) {
      const int64_t element = element_at(meta.global_shape, box, i);
      std::byte* at = tensor.data() + i * size_of(meta.dtype);
      store(meta.dtype, part_value(meta, index, element, whole_numbers), at);
      part[static_cast<size_t>(element)] = load(meta.dtype, at);
    }
    exchange.set_value(meta.layout.mesh().devices()[static_cast<size_t>(index)], std::move(tensor));
  }
  return parts;
}

void expect_right(const Exchange& exchange, const std::vector<Values>& sources) {
  const TensorMeta& to = *exchange.to();
  const std::string what = exchange.from()->str() + " -> " + to.layout.str();
  ASSERT_EQ(static_cast<int64_t>(exchange.deliveries().size()), to.layout.mesh().num_devices()) << what;
  std::vector<Values> parts;
  for (int64_t index = 0; index < to.layout.mesh().num_devices(); ++index) {
    const Delivery& delivery = exchange.deliveries().at(to.layout.mesh().devices()[static_cast<size_t>(index)]);
    const Box box = to.layout.box_at(to.global_shape, index);
    ASSERT_EQ(delivery.error, "") << what;
    ASSERT_EQ(delivery.local_shape, box.size) << what;
    Values& part = parts.emplace_back(static_cast<size_t>(to.global_shape.num_elements()));
    for (int64_t i = 0; i < box.num_elements(); ++i) {
      part[static_cast<size_t>(element_at(to.global_shape, box, i))] =
          load(to.dtype, delivery.bytes.data() + i * size_of(to.dtype));
    }
  }
  const Values expected = logical_value(*exchange.from(), sources);
  EXPECT_EQ(logical_value(to, parts), expected) << what;
  if (to.layout.has_partial()) return;
  for (int64_t index = 0; index < to.layout.mesh().num_devices(); ++index) {  // replicas too
    const Box box = to.layout.box_at(to.global_shape, index);
    for (int64_t i = 0; i < box.num_elements(); ++i) {
      const size_t at = static_cast<size_t>(element_at(to.global_shape, box, i));
      ASSERT_EQ(parts[static_cast<size_t>(index)][at], expected[at])
          << what << " mesh index " << index << " element " << at;
    }
  }
}

using Pair = std::pair<const TensorMeta*, const TensorMeta*>;

bool one_kind(const Placements& placements) {
  const Placement* first = nullptr;
  for (const Placement& p : placements) {
    if (!p.is_partial()) continue;
    if (first != nullptr && first->reduce != p.reduce) return false;
    first = &p;
  }
  return true;
}

std::vector<const TensorMeta*> all_metas(const DeviceMesh& mesh, const Shape& shape, DType dtype,
                                         const std::vector<Placement>& choices) {
  std::vector<Placements> list{{}};
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<Placements> next;
    for (const Placements& placements : list) {
      for (const Placement& choice : choices) {
        next.push_back(placements);
        next.back().push_back(choice);
      }
    }
    list = std::move(next);
  }
  std::vector<const TensorMeta*> metas;
  for (const Placements& placements : list) {
    if (one_kind(placements)) metas.push_back(intern_meta(shape, dtype, Layout(mesh, placements, shape.ndim())));
  }
  return metas;
}

std::vector<Pair> pairs_of(const std::vector<const TensorMeta*>& from, const std::vector<const TensorMeta*>& to) {
  std::vector<Pair> pairs;
  for (const TensorMeta* a : from) {
    for (const TensorMeta* b : to) {
      if (a != b) pairs.emplace_back(a, b);
    }
  }
  return pairs;
}

// All exchanges under way at once; nodes become ready in an order of their own. Returns what devices got, in the order
// of pairs. bytes_sent: between nodes.
std::vector<std::map<int64_t, Delivery>> run(const std::vector<Pair>& pairs, int32_t num_nodes, bool whole_numbers,
                                             FoldOrder fold_order = FoldOrder::kMesh, int64_t* bytes_sent = nullptr,
                                             const DirectParts& direct = {}) {
  Cluster cluster(kDevices, num_nodes);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::vector<std::vector<Values>> sources;
  std::vector<std::pair<Exchange*, int32_t>> order;
  for (const auto& [from, to] : pairs) {
    exchanges.push_back(std::make_unique<Exchange>(from, to, cluster.binding(), fold_order, direct));
    sources.push_back(fill_sources(*exchanges.back(), whole_numbers));
    cluster.submit(*exchanges.back(), exchanges.size());
    for (int32_t node = 0; node < num_nodes; ++node) order.emplace_back(exchanges.back().get(), node);
  }
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(num_nodes)));
  for (const auto& [exchange, node] : order) cluster.make_ready(*exchange, node);
  EXPECT_TRUE(cluster.wait());
  if (bytes_sent != nullptr) *bytes_sent = cluster.bytes_sent();
  std::vector<std::map<int64_t, Delivery>> results;
  for (size_t i = 0; i < exchanges.size(); ++i) {
    if (whole_numbers) expect_right(*exchanges[i], sources[i]);
    results.push_back(exchanges[i]->deliveries());
  }
  return results;
}

struct Way {
  int32_t num_nodes = 1;
  FoldOrder order = FoldOrder::kMesh;
  DirectParts direct = {};
};

class OnNodes : public testing::TestWithParam<Way> {
 protected:
  void run_all(const std::vector<Pair>& pairs) {
    run(pairs, GetParam().num_nodes, true, GetParam().order, nullptr, GetParam().direct);
  }
};

TEST_P(OnNodes, EveryPairOfPlacementsOnOneAxisGivesEveryDeviceItsPart) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  for (const Shape& shape : {Shape{7, 5}, Shape{3, 2}, Shape{0, 3}, Shape{8, 4}}) {
    const auto metas =
        all_metas(mesh, shape, kFloat32,
                  {Replicate(), Shard(0), Shard(1), Partial(kSum), Partial(kAvg), Partial(kMax), Partial(kMin)});
    run_all(pairs_of(metas, metas));
  }
}

TEST_P(OnNodes, EveryPairOfPlacementsOnTwoAxesGivesEveryDeviceItsPart) {
  const auto metas = all_metas(init_device_mesh("cpu", {2, 2}), {5, 3}, kFloat64,
                               {Replicate(), Shard(0), Shard(1), Partial(kSum), Partial(kMax)});
  run_all(pairs_of(metas, metas));
}

TEST_P(OnNodes, BetweenDifferentMeshesEveryDeviceGetsItsPart) {
  const std::vector<Placement> choices{Replicate(), Shard(0), Shard(1), Partial(kSum)};
  const Shape shape{5, 6};
  std::vector<const TensorMeta*> metas;
  for (const DeviceMesh& mesh :
       {DeviceMesh("cpu", {2}, {0, 1}), DeviceMesh("cpu", {2}, {3, 2}), DeviceMesh("cpu", {3}, {3, 0, 1}),
        DeviceMesh("cpu", {2, 2}, {2, 0, 3, 1}), DeviceMesh("cpu", {1}, {2})}) {
    const auto some = all_metas(mesh, shape, kInt64, choices);
    metas.insert(metas.end(), some.begin(), some.end());
  }
  run_all(pairs_of(metas, metas));
}

INSTANTIATE_TEST_SUITE_P(Transfer, OnNodes,
                         testing::Values(Way{1}, Way{2}, Way{3}, Way{4}, Way{2, FoldOrder::kByNode},
                                         Way{3, FoldOrder::kByNode}, Way{2, FoldOrder::kMesh, kTinyChunks},
                                         Way{3, FoldOrder::kMesh, kTinyChunks}, Way{4, FoldOrder::kMesh, kTinyChunks},
                                         Way{2, FoldOrder::kByNode, kTinyChunks},
                                         Way{3, FoldOrder::kByNode, kTinyChunks}),
                         [](const auto& info) {
                           const Way& way = info.param;
                           return std::to_string(way.num_nodes) +
                                  (way.order == FoldOrder::kMesh ? "" : "FoldingByNode") +
                                  (way.direct.least_bytes == 1 ? "InChunks" : "");
                         });

TEST(Transfer, BitsDontDependOnTheNumberOfNodes) {
  for (DType dtype : {kFloat32, kBFloat16, kFloat16}) {
    const auto metas = all_metas(init_device_mesh("cpu", {2, 2}), {7, 3}, dtype,
                                 {Replicate(), Shard(0), Partial(kSum), Partial(kAvg)});
    const std::vector<Pair> pairs = pairs_of(metas, metas);
    const auto expected = run(pairs, 1, false);
    for (const Way& way : {Way{2}, Way{3}, Way{4}, Way{2, FoldOrder::kMesh, kTinyChunks},
                           Way{3, FoldOrder::kMesh, kTinyChunks}, Way{4, FoldOrder::kMesh, kTinyChunks}}) {
      const auto got = run(pairs, way.num_nodes, false, way.order, nullptr, way.direct);
      for (size_t i = 0; i < pairs.size(); ++i) {
        for (const auto& [device, delivery] : expected[i]) {
          EXPECT_EQ(got[i].at(device).bytes, delivery.bytes)
              << pairs[i].first->str() << " -> " << pairs[i].second->layout.str();
        }
      }
    }
  }
}

// The mesh begins on one node or the other, and goes to and fro between them.
TEST(Transfer, FoldedByNodeReplicasHaveTheSameBits) {
  for (DType dtype : {kFloat32, kBFloat16}) {
    for (const Shape& shape : {Shape{7, 3}, Shape{}}) {
      std::vector<Pair> pairs;
      for (const std::vector<int64_t>& devices : {std::vector<int64_t>{0, 1, 2, 3}, {2, 0, 1, 3}, {3, 1, 0, 2}}) {
        const DeviceMesh mesh("cpu", {4}, devices);
        for (const Placement& pending : {Partial(kSum), Partial(kAvg), Partial(kMax)}) {
          pairs.emplace_back(intern_meta(shape, dtype, Layout(mesh, {pending}, shape.ndim())),
                             intern_meta(shape, dtype, Layout(mesh, {Replicate()}, shape.ndim())));
        }
      }
      const auto ordered = run(pairs, 2, false);
      const auto got = run(pairs, 2, false, FoldOrder::kByNode);
      bool differs = false;
      for (size_t i = 0; i < pairs.size(); ++i) {
        for (const auto& [device, delivery] : got[i]) {
          EXPECT_EQ(delivery.bytes, got[i].at(0).bytes) << pairs[i].first->str() << " device " << device;
        }
        const bool is_sum = pairs[i].first->layout.placement(0).reduce != kMax;
        const bool same = got[i].at(0).bytes == ordered[i].at(0).bytes;
        if (dtype == kBFloat16 || !is_sum) {
          EXPECT_TRUE(same) << pairs[i].first->str();
        }
        differs |= !same;
      }
      if (dtype == kFloat32 && shape.ndim() != 0) {
        EXPECT_TRUE(differs) << "no sum had another order";
      }
    }
  }
}

TEST(Transfer, FoldedByNodeHalfOfAPendingSumIsSent) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const Shape shape{1 << 16};
  const std::vector<Pair> pairs{{intern_meta(shape, kFloat32, Layout(mesh, {Partial(kSum)}, 1)),
                                 intern_meta(shape, kFloat32, Layout(mesh, {Shard(0)}, 1))}};
  int64_t in_mesh_order = 0, by_node = 0;
  run(pairs, 2, false, FoldOrder::kMesh, &in_mesh_order);
  run(pairs, 2, false, FoldOrder::kByNode, &by_node);
  const int64_t tensor = shape[0] * size_of(kFloat32);
  EXPECT_NEAR(in_mesh_order, 2 * tensor, 1024);  // headers
  EXPECT_NEAR(by_node, tensor, 1024);
}

// Chunks of the real size, and folds and copies that several threads share.
TEST(Transfer, LargeTensorsGiveEveryDeviceItsPart) {
  const auto metas =
      all_metas(init_device_mesh("cpu", {4}), {3, 100'001}, kFloat32, {Replicate(), Shard(0), Shard(1), Partial(kSum)});
  for (int32_t num_nodes : {1, 2, 3}) run(pairs_of(metas, metas), num_nodes, true);
}

TEST(Transfer, ScalarsTravel) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  const auto metas = all_metas(mesh, {}, kFloat64, {Replicate(), Partial(kSum), Partial(kMin)});
  run(pairs_of(metas, metas), 4, true);
  run(pairs_of(metas, metas), 2, true, FoldOrder::kByNode);
}

}  // namespace
}  // namespace dtorch
