#include "tests/mesh/lower_bound.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "mesh/redistribute_plan.h"
#include "tests/mesh/simulator.h"

namespace dtorch::test {
namespace {

bool is_kept(const Layout& from, const Layout& to, int64_t axis) {
  return from.mesh() == to.mesh() && from.placement(axis).is_partial() && from.placement(axis) == to.placement(axis);
}

// Position on the axes whose parts stay as they are: parts of different positions are different values.
int64_t group_of(const Layout& from, const Layout& to, const Shape& coordinate) {
  int64_t group = 0;
  for (int64_t axis = 0; from.mesh() == to.mesh() && axis < coordinate.size(); ++axis) {
    if (is_kept(from, to, axis)) group = group * from.mesh().shape()[axis] + coordinate[axis];
  }
  return group;
}

// A device that holds only 0 for a new Partial(sum) needs nothing.
bool holds_zero(const Layout& from, const Layout& to, const Shape& coordinate) {
  for (int64_t axis = 0; axis < coordinate.size(); ++axis) {
    if (to.placement(axis).is_partial(kSum) && coordinate[axis] > 0 && !is_kept(from, to, axis)) return true;
  }
  return false;
}

struct Sides {
  std::vector<int64_t> holders, wanting;  // device numbers
};

int64_t least_of(const Sides& sides, int64_t num_parts) {
  if (sides.wanting.empty()) return 0;
  const int64_t wanting = static_cast<int64_t>(sides.wanting.size());
  const int64_t both = std::ranges::count_if(
      sides.wanting, [&](int64_t device) { return std::ranges::find(sides.holders, device) != sides.holders.end(); });
  if (num_parts == 1) return wanting - both;
  return num_parts - 1 + wanting - (both > 0 ? 1 : 0);
}

std::string percent(double ratio) {
  char text[16];
  std::snprintf(text, sizeof text, "%.2f", ratio);
  return text;
}

std::string share(int64_t elements, int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(elements) / static_cast<double>(whole));
  return text;
}

// R, S0, P: one word an axis.
std::string short_name(const Layout& layout) {
  std::string text;
  for (const Placement& p : layout.placements()) {
    text += (text.empty() ? "" : " ") + (p.is_replicate() ? "R"
                                         : p.is_shard()   ? "S" + std::to_string(p.dim)
                                                          : std::string("P"));
  }
  return text + (layout.order_is_default() ? "" : " " + layout.order_str());
}

std::string section(const DeviceMesh& mesh) {
  const std::vector<PairCost> pairs = all_pair_costs(mesh, table_shape());
  std::vector<double> ratios;
  for (const PairCost& pair : pairs) ratios.push_back(pair.ratio());
  const auto at_bound = std::ranges::count(ratios, 1.0);
  std::string text = "\n## " + mesh.sizes_str() + "\n" + std::to_string(pairs.size()) + " pairs, " +
                     std::to_string(at_bound) + " at the bound, worst " + percent(std::ranges::max(ratios)) + ".\n";
  if (mesh.num_axes() > 1) {
    text += "\n";
    if (at_bound == static_cast<int64_t>(pairs.size())) return text + "Every pair moves the least.\n";
    text += "Pairs above the bound:\n";
  }
  text += "\n| from | to | moved | least | ratio |\n|---|---|---|---|---|\n";
  for (const PairCost& pair : pairs) {
    if (mesh.num_axes() > 1 && pair.moved == pair.least) continue;
    text += "| " + short_name(pair.from) + " | " + short_name(pair.to) + " | " +
            share(pair.moved, table_shape().num_elements()) + " | " + share(pair.least, table_shape().num_elements()) +
            " | " + percent(pair.ratio()) + " |\n";
  }
  return text;
}

}  // namespace

int64_t least_elements(const Shape& global_shape, const Layout& from, const Layout& to) {
  int64_t num_parts = 1;
  for (int64_t axis = 0; axis < from.mesh().num_axes(); ++axis) {
    if (from.placement(axis).is_partial() && !is_kept(from, to, axis)) num_parts *= from.mesh().shape()[axis];
  }
  int64_t least = 0;
  for_each_coordinate(global_shape, [&](const Shape& element) {
    const Box box{element, Shape(element.size(), 1)};
    std::map<int64_t, Sides> groups;
    for (int64_t i = 0; i < from.mesh().num_devices(); ++i) {
      if (!from.box_at(global_shape, i).contains(box)) continue;
      groups[group_of(from, to, from.mesh().coordinate_of_index(i))].holders.push_back(
          from.mesh().devices()[static_cast<size_t>(i)]);
    }
    for (int64_t i = 0; i < to.mesh().num_devices(); ++i) {
      const Shape coordinate = to.mesh().coordinate_of_index(i);
      if (holds_zero(from, to, coordinate) || !to.box_at(global_shape, i).contains(box)) continue;
      groups[group_of(from, to, coordinate)].wanting.push_back(to.mesh().devices()[static_cast<size_t>(i)]);
    }
    for (const auto& [group, sides] : groups) least += least_of(sides, num_parts);
  });
  return least;
}

std::vector<PairCost> all_pair_costs(const DeviceMesh& mesh, const Shape& global_shape) {
  std::vector<PairCost> pairs;
  const std::vector<Layout> layouts = all_layouts(mesh, global_shape.ndim(), {kSum});
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      if (from == to) continue;
      pairs.push_back({from, to, redistribute_bytes(global_shape, kFloat32, from, to) / size_of(kFloat32),
                       least_elements(global_shape, from, to)});
    }
  }
  return pairs;
}

std::vector<DeviceMesh> table_meshes() {
  return {init_device_mesh("cpu", {4}, {"a"}), init_device_mesh("cpu", {8}, {"a"}),
          init_device_mesh("cpu", {2, 2}, {"a", "b"}), init_device_mesh("cpu", {2, 4}, {"a", "b"}),
          init_device_mesh("cpu", {4, 2}, {"a", "b"})};
}

std::string redistribution_table() {
  std::string text =
      "# What redistribute moves\n\n"
      "Written by `build/bin/redistribute_table docs/redistribution.md`; a test compares it.\n\n"
      "R, S0, S1 and P stand for Replicate, Shard(0), Shard(1) and Partial(sum), one an axis; `{b, a}` is the order of "
      "axes that split one dim,\nwhere it isn't the mesh's. `moved` is what devices receive from other devices under "
      "the "
      "planner's choice, summed over devices, in sizes of\nthe whole tensor (shape " +
      table_shape().str() +
      "); copies through the memory of one node count like any other. `least` is a lower bound: what a device lacks; "
      "for "
      "a\npending sum n - 1 receives until one device has an element's value and one for every further device that "
      "wants "
      "it (so 2 (n - 1) / n of\nthe tensor a device for P -> R, (n - 1) / n for P -> S).\n\n"
      "Gates (`tests/mesh/redistribute_bound_test.cc`): 1.00 on one axis, 1.50 on two.\n";
  for (const DeviceMesh& mesh : table_meshes()) text += section(mesh);
  return text;
}

}  // namespace dtorch::test
