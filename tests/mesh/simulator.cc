#include "tests/mesh/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace dtorch::test {
namespace {

double fold(ReduceOp op, double a, double b) {
  if (op == kMax) return std::max(a, b);
  if (op == kMin) return std::min(a, b);
  return a + b;
}

// Partial axes of a layout by kind, kinds in the order of their first axis; `keep` says which axes stay.
struct KindAxes {
  ReduceOp kind;
  AxisList axes;
};
template <class Keep>
std::vector<KindAxes> kinds_of(const Layout& layout, Keep&& keep) {
  std::vector<KindAxes> kinds;
  for (int64_t axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    const Placement& p = layout.placement(axis);
    if (!p.is_partial() || keep(axis)) continue;
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const KindAxes& k) { return k.kind == p.reduce; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), KindAxes{p.reduce, {}});
    found->axes.push_back(static_cast<int8_t>(axis));
  }
  return kinds;
}

// Part `index` of `count` parts whose reduction is `value`.
double part_of(ReduceOp kind, double value, int64_t index, int64_t count, int64_t element) {
  const double i = static_cast<double>(index);
  const double n = static_cast<double>(count);
  if (kind == kMax || kind == kMin) {
    const double distance = static_cast<double>((index + element) % count);
    return kind == kMax ? value - distance : value + distance;
  }
  const double total = kind == kAvg ? value * n : value;
  if (index + 1 < count) return 2 * value + i;
  return total - (n - 1) * 2 * value - (n - 1) * (n - 2) / 2;
}

// Reduces `layout`'s Partial axes for one element; `value_at` gives the part at a mesh coordinate. `coordinate` is
// changed only on the axes that are folded.
template <class ValueAt>
double reduce_element(const std::vector<KindAxes>& kinds, size_t level, const DeviceMesh& mesh, Shape coordinate,
                      const ValueAt& value_at) {
  if (level == 0) return value_at(coordinate);
  const KindAxes& kind = kinds[level - 1];
  Shape sizes;
  for (int8_t axis : kind.axes) sizes.push_back(mesh.shape()[axis]);
  bool first = true;
  double result = 0;
  for_each_coordinate(sizes, [&](const Shape& at) {
    for (int64_t i = 0; i < at.size(); ++i) coordinate[kind.axes[i]] = at[i];
    const double value = reduce_element(kinds, level - 1, mesh, coordinate, value_at);
    result = first ? value : fold(kind.kind, result, value);
    first = false;
  });
  return kind.kind == kAvg ? result / static_cast<double>(sizes.num_elements()) : result;
}

// The device at `coordinate` on all axes but those that shard, and on those the one that holds `element`.
double value_of_holder(const Distributed& tensor, const Shape& coordinate, const Shape& element) {
  const DeviceMesh& mesh = tensor.layout.mesh();
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const Shape other = mesh.coordinate_of_index(index);
    bool candidate = true;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      if (!tensor.layout.placement(axis).is_shard() && other[axis] != coordinate[axis]) candidate = false;
    }
    if (!candidate) continue;
    const Box box = tensor.layout.box_at(tensor.global_shape, index);
    if (!box.contains({element, Shape(element.size(), 1)})) continue;
    Shape local = element;
    for (int64_t d = 0; d < local.size(); ++d) local[d] -= box.offset[d];
    return tensor.parts.at(mesh.devices()[static_cast<size_t>(index)]).at(local);
  }
  ADD_FAILURE() << "nobody holds element " << element << " of " << tensor.layout;
  return 0;
}

Shape global_coordinate(const Box& box, const Shape& local) {
  Shape at = local;
  for (int64_t d = 0; d < at.size(); ++d) at[d] += box.offset[d];
  return at;
}

// Fills every device's part by f(coordinate on the mesh, global element).
template <class F>
Distributed make(const Shape& shape, const Layout& layout, F&& f) {
  Distributed result{shape, layout, {}};
  const DeviceMesh& mesh = layout.mesh();
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const Box box = layout.box_at(shape, index);
    Array part{box.size, {}};
    const Shape coordinate = mesh.coordinate_of_index(index);
    for_each_coordinate(box.size,
                        [&](const Shape& local) { part.data.push_back(f(coordinate, global_coordinate(box, local))); });
    result.parts[mesh.devices()[static_cast<size_t>(index)]] = std::move(part);
  }
  return result;
}

}  // namespace

std::vector<Layout> all_layouts(const DeviceMesh& mesh, int64_t ndim, const std::vector<ReduceOp>& partials) {
  std::vector<Placement> options{Replicate()};
  for (int64_t d = 0; d < ndim; ++d) options.push_back(Shard(d));
  for (ReduceOp op : partials) options.push_back(Partial(op));
  std::vector<Layout> layouts;
  const auto add = [&](const Layout& layout) {
    if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(layout);
  };
  Shape choices(mesh.num_axes(), static_cast<int64_t>(options.size()));
  for_each_coordinate(choices, [&](const Shape& choice) {
    Placements placements;
    for (int64_t c : choice) placements.push_back(options[static_cast<size_t>(c)]);
    AxisList order;
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) order.push_back(static_cast<int8_t>(axis));
    do {
      add(Layout(mesh, placements, ndim, order));
    } while (std::next_permutation(order.begin(), order.end()));
  });
  return layouts;
}

int64_t flat_index(const Shape& at, const Shape& shape) {
  int64_t index = 0;
  for (int64_t d = 0; d < at.size(); ++d) index = index * shape[d] + at[d];
  return index;
}

Array iota(const Shape& shape) {
  Array result{shape, {}};
  for (int64_t e = 0; e < shape.num_elements(); ++e) result.data.push_back(static_cast<double>(3 * e - 7));
  return result;
}

Distributed distribute(const Array& value, const Layout& layout) {
  const std::vector<KindAxes> kinds = kinds_of(layout, [](int64_t) { return false; });
  const DeviceMesh& mesh = layout.mesh();
  return make(value.shape, layout, [&](const Shape& coordinate, const Shape& element) {
    double part = value.at(element);
    const int64_t e = flat_index(element, value.shape);
    for (size_t k = kinds.size(); k-- > 0;) {
      int64_t index = 0;
      int64_t count = 1;
      for (int8_t axis : kinds[k].axes) {
        index = index * mesh.shape()[axis] + coordinate[axis];
        count *= mesh.shape()[axis];
      }
      part = part_of(kinds[k].kind, part, index, count, e);
    }
    return part;
  });
}

Array assemble(const Distributed& tensor) {
  const std::vector<KindAxes> kinds = kinds_of(tensor.layout, [](int64_t) { return false; });
  const DeviceMesh& mesh = tensor.layout.mesh();
  Array result{tensor.global_shape, std::vector<double>(static_cast<size_t>(tensor.global_shape.num_elements()))};
  for_each_coordinate(tensor.global_shape, [&](const Shape& element) {
    std::set<double> values;
    for (int64_t index = 0; index < mesh.num_devices(); ++index) {
      values.insert(reduce_element(kinds, kinds.size(), mesh, mesh.coordinate_of_index(index),
                                   [&](const Shape& at) { return value_of_holder(tensor, at, element); }));
    }
    EXPECT_EQ(values.size(), 1u) << "replicas of " << tensor.layout << " differ at " << element;
    result.data[static_cast<size_t>(flat_index(element, tensor.global_shape))] = *values.begin();
  });
  return result;
}

Distributed expected_redistribute(const Distributed& source, const Layout& destination) {
  const Layout& from = source.layout;
  const bool same_mesh = from.mesh() == destination.mesh();
  const auto keep = [&](int64_t axis) { return same_mesh && from.placement(axis) == destination.placement(axis); };
  const std::vector<KindAxes> kinds = kinds_of(from, keep);
  return make(source.global_shape, destination, [&](const Shape& coordinate, const Shape& element) {
    for (int64_t axis = 0; axis < coordinate.size(); ++axis) {
      if (destination.placement(axis).is_partial(kSum) && !keep(axis) && coordinate[axis] > 0) return 0.0;
    }
    Shape at = same_mesh ? coordinate : Shape(from.mesh().num_axes(), 0);
    return reduce_element(kinds, kinds.size(), from.mesh(), at,
                          [&](const Shape& c) { return value_of_holder(source, c, element); });
  });
}

namespace {

Distributed run_stage(const Stage& stage, const Distributed& source, const DeviceBinding& binding) {
  EXPECT_EQ(stage.from->layout, source.layout);
  Distributed result{source.global_shape, stage.to->layout, {}};
  for (int64_t device : stage.to->layout.mesh().devices()) {
    const Box own = stage.to->layout.box_of(source.global_shape, device);
    Array part{own.size, std::vector<double>(static_cast<size_t>(own.size.num_elements()), NAN)};
    Shape last_offset;
    for (const PlanPiece& piece : pieces_for(stage, device, binding)) {
      EXPECT_FALSE(piece.box.empty());
      EXPECT_TRUE(own.contains(piece.box));
      EXPECT_TRUE(last_offset.empty() ||
                  std::lexicographical_compare(last_offset.begin(), last_offset.end(), piece.box.offset.begin(),
                                               piece.box.offset.end()));
      last_offset = piece.box.offset;
      for_each_coordinate(piece.box.size, [&](const Shape& local) {
        const Shape at = global_coordinate(piece.box, local);
        double value = 0;
        for (size_t i = 0; i < piece.sources.size(); ++i) {
          const Box held = stage.from->layout.box_of(source.global_shape, piece.sources[i]);
          EXPECT_TRUE(held.contains(piece.box)) << "device " << piece.sources[i] << " lacks " << piece.box;
          Shape in_held = at;
          for (int64_t d = 0; d < at.size(); ++d) in_held[d] -= held.offset[d];
          const double next = source.parts.at(piece.sources[i]).at(in_held);
          value = i == 0 ? next : fold(stage.reduce, value, next);
        }
        Shape in_own = at;
        for (int64_t d = 0; d < at.size(); ++d) in_own[d] -= own.offset[d];
        double& slot = part.data[static_cast<size_t>(flat_index(in_own, own.size))];
        EXPECT_TRUE(std::isnan(slot)) << "pieces overlap";
        slot = value / static_cast<double>(stage.divisor);
      });
    }
    EXPECT_TRUE(std::none_of(part.data.begin(), part.data.end(), [](double v) { return std::isnan(v); }))
        << "pieces leave a gap";
    result.parts[device] = std::move(part);
  }
  return result;
}

}  // namespace

Distributed run_plan(const RedistributePlan& plan, const Distributed& source, const Layout& destination,
                     const DeviceBinding& binding) {
  Distributed at = source;
  for (const Stage& stage : plan.stages) at = run_stage(stage, at, binding);
  EXPECT_EQ(at.layout, destination);
  return at;
}

Distributed redistribute(const Distributed& source, const Layout& destination) {
  const TensorMeta* from = intern_meta(source.global_shape, kFloat64, source.layout);
  const TensorMeta* to = intern_meta(source.global_shape, kFloat64, destination);
  return run_plan(make_redistribute_plan(from, to), source, destination, block_binding(64, 2));
}

bool equal(const Distributed& a, const Distributed& b) {
  if (a.layout != b.layout || a.global_shape != b.global_shape || a.parts.size() != b.parts.size()) return false;
  for (const auto& [device, part] : a.parts) {
    const Array& other = b.parts.at(device);
    if (part.shape != other.shape || part.data != other.data) return false;
  }
  return true;
}

}  // namespace dtorch::test
