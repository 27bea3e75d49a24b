// Layout and TensorMeta: who holds what, printing, interning.
#include "mesh/layout.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <ostream>
#include <unordered_map>

namespace dtorch {
namespace {

size_t mix(size_t hash, size_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 7); }

// One table a type; entries live as long as the process.
template <class T, class Equal>
const T* intern(size_t hash, const T& item, const Equal& equal) {
  static std::mutex mutex;
  static auto* table = new std::unordered_multimap<size_t, std::unique_ptr<const T>>();
  std::lock_guard lock(mutex);
  auto [first, last] = table->equal_range(hash);
  for (; first != last; ++first) {
    if (equal(*first->second, item)) return first->second.get();
  }
  return table->emplace(hash, std::make_unique<const T>(item))->second.get();
}

const LayoutData* intern_layout(const LayoutData& data) {
  size_t hash = std::hash<const void*>()(data.mesh.data());
  for (const Placement& p : data.placements) {
    hash = mix(hash,
               (static_cast<size_t>(p.kind) << 16) | (static_cast<size_t>(p.reduce) << 8) | static_cast<size_t>(p.dim));
  }
  for (int8_t axis : data.shard_order) hash = mix(hash, static_cast<size_t>(axis));
  return intern(hash, data, [](const LayoutData& a, const LayoutData& b) {
    return a.mesh == b.mesh && a.placements == b.placements && a.shard_order == b.shard_order;
  });
}

int64_t normal_dim(const Placement& shard, int64_t ndim, const std::source_location& where) {
  try {
    return normalize_dim(shard.dim, ndim, "placement");
  } catch (const ShapeError& error) {
    throw ShapeError(error.what() + called_at(where));
  }
}

// `preferred` first, then the axes it doesn't name in mesh order; of those only the ones that shard, grouped by dim.
const LayoutData* make_layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim,
                              const AxisList& preferred, const std::source_location& where) {
  const int64_t num_axes = mesh.num_axes();
  if (placements.size() != num_axes) {
    throw MeshError(std::to_string(placements.size()) + " placements " + placements.str() + " for the " +
                    std::to_string(num_axes) + " axes of " + mesh.str() + "; give one an axis" + called_at(where));
  }
  LayoutData data{mesh, placements, {}};
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    Placement& p = data.placements[axis];
    if (p.is_shard()) p = Shard(normal_dim(p, ndim, where));
    if (mesh.shape()[axis] == 1) p = Replicate();
  }
  AxisList order;
  for (int8_t axis : preferred) {
    if (axis < 0 || axis >= num_axes)
      throw KeyError("axis " + std::to_string(axis) + " isn't in " + mesh.str() + called_at(where));
    if (std::find(order.begin(), order.end(), axis) != order.end()) {
      throw KeyError("axis " + mesh.axis_label(axis) + " stands twice in a shard order" + called_at(where));
    }
    order.push_back(axis);
  }
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    const int8_t a = static_cast<int8_t>(axis);
    if (std::find(order.begin(), order.end(), a) == order.end()) order.push_back(a);
  }
  for (int64_t dim = 0; dim < ndim; ++dim) {
    for (int8_t axis : order) {
      if (data.placements[axis].is_shard(dim)) data.shard_order.push_back(axis);
    }
  }
  return intern_layout(data);
}

}  // namespace

Layout::Layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim, std::source_location where)
    : data_(make_layout(mesh, placements, ndim, {}, where)) {}

Layout::Layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim,
               const std::vector<std::string>& order, std::source_location where) {
  AxisList axes;
  for (const std::string& name : order) {
    const int8_t axis = static_cast<int8_t>(mesh.axis(name, where));
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) {
      throw KeyError("axis \"" + name + "\" stands twice in a shard order" + called_at(where));
    }
    axes.push_back(axis);
  }
  data_ = make_layout(mesh, placements, ndim, axes, where);
}

Layout::Layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim, const AxisList& order,
               std::source_location where)
    : data_(make_layout(mesh, placements, ndim, order, where)) {}

Layout Layout::replicated(const DeviceMesh& mesh) { return Layout(mesh, Placements(mesh.num_axes(), Replicate()), 0); }

AxisList Layout::axes_of_dim(int64_t dim) const {
  AxisList axes;
  for (int8_t axis : shard_order()) {
    if (placement(axis).is_shard(dim)) axes.push_back(axis);
  }
  return axes;
}

bool Layout::is_replicated() const {
  return std::all_of(placements().begin(), placements().end(), [](const Placement& p) { return p.is_replicate(); });
}

bool Layout::has_partial() const {
  return std::any_of(placements().begin(), placements().end(), [](const Placement& p) { return p.is_partial(); });
}

bool Layout::order_is_default() const {
  for (int64_t i = 1; i < shard_order().size(); ++i) {
    const int8_t outer = shard_order()[i - 1];
    const int8_t inner = shard_order()[i];
    if (placement(outer) == placement(inner) && outer > inner) return false;
  }
  return true;
}

Box Layout::box_at(const Shape& global_shape, int64_t mesh_index) const {
  const Shape coordinate = mesh().coordinate_of_index(mesh_index);
  Box box = whole(global_shape);
  for (int8_t axis : shard_order()) {
    const int64_t dim = placement(axis).dim;
    DTORCH_CHECK(dim < global_shape.ndim(), str() + " on shape " + global_shape.str());
    const Span1 part = split_part(box.size[dim], mesh().shape()[axis], coordinate[axis]);
    box.offset[dim] += part.offset;
    box.size[dim] = part.size;
  }
  return box;
}

Box Layout::box_of(const Shape& global_shape, int64_t device) const {
  const int64_t index = mesh().index_of(device);
  DTORCH_CHECK(index >= 0, "device " + std::to_string(device) + " isn't in " + mesh().str());
  return box_at(global_shape, index);
}

Layout Layout::without_partial() const {
  if (!has_partial()) return *this;
  Placements target = placements();
  for (Placement& p : target) {
    if (p.is_partial()) p = Replicate();
  }
  return with_placements(target, kMaxDims);
}

Layout Layout::with_placements(const Placements& target, int64_t ndim, std::source_location where) const {
  Placements normal = target;
  for (Placement& p : normal) {
    if (p.is_shard()) p = Shard(normal_dim(p, ndim, where));
  }
  AxisList kept;
  for (int8_t axis : shard_order()) {
    if (axis < normal.size() && normal[axis] == placement(axis)) kept.push_back(axis);
  }
  return Layout(mesh(), normal, ndim, kept, where);
}

std::string Layout::order_str() const {
  std::string text = "{";
  for (int64_t i = 0; i < shard_order().size(); ++i) {
    text += (i == 0 ? "" : ", ") + mesh().axis_label(shard_order()[i]);
  }
  return text + "}";
}

std::string Layout::str() const {
  if (!data_) return "no layout";
  return placements().str() + (order_is_default() ? "" : ", order " + order_str());
}

namespace {

// Where parts begin and end along a dim, ascending, without repetition.
std::vector<int64_t> cuts_of(const Layout& layout, const Shape& global_shape, int64_t dim) {
  std::vector<int64_t> cuts;
  for (int64_t index = 0; index < layout.mesh().num_devices(); ++index) {
    const Box box = layout.box_at(global_shape, index);
    cuts.push_back(box.offset[dim]);
    cuts.push_back(box.offset[dim] + box.size[dim]);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

// The devices whose box covers [row, column].
std::string holders_of(const Layout& layout, const Shape& global_shape, const Box& cell) {
  std::string text;
  for (int64_t index = 0; index < layout.mesh().num_devices(); ++index) {
    if (!layout.box_at(global_shape, index).contains(cell)) continue;
    text += (text.empty() ? "" : " ") + std::to_string(layout.mesh().devices()[static_cast<size_t>(index)]);
  }
  return text;
}

std::string span_text(const std::vector<int64_t>& cuts, size_t i) {
  return std::to_string(cuts[i]) + ":" + std::to_string(cuts[i + 1]);
}

// A tensor of one or two dims as a grid of the boxes, each with the devices that hold it; "" when it would be too
// large.
std::string picture_of(const Layout& layout, const Shape& global_shape) {
  constexpr size_t kMaxSide = 16;
  const int64_t ndim = global_shape.ndim();
  if (ndim < 1 || ndim > 2 || global_shape.num_elements() == 0) return "";
  // A vector is one row.
  const std::vector<int64_t> rows = ndim == 2 ? cuts_of(layout, global_shape, 0) : std::vector<int64_t>{0, 1};
  const std::vector<int64_t> columns = cuts_of(layout, global_shape, ndim - 1);
  if (rows.size() > kMaxSide + 1 || columns.size() > kMaxSide + 1) return "";
  std::vector<std::vector<std::string>> table(rows.size(), std::vector<std::string>(columns.size()));
  for (size_t c = 0; c + 1 < columns.size(); ++c) table[0][c + 1] = span_text(columns, c);
  for (size_t r = 0; r + 1 < rows.size(); ++r) {
    if (ndim == 2) table[r + 1][0] = span_text(rows, r);
    for (size_t c = 0; c + 1 < columns.size(); ++c) {
      Box cell{{columns[c]}, {columns[c + 1] - columns[c]}};
      if (ndim == 2) cell = {{rows[r], columns[c]}, {rows[r + 1] - rows[r], columns[c + 1] - columns[c]}};
      table[r + 1][c + 1] = holders_of(layout, global_shape, cell);
    }
  }
  std::vector<size_t> widths(columns.size(), 0);
  for (const auto& row : table) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string rule = "  " + std::string(widths[0], ' ') + " +";
  for (size_t c = 1; c < widths.size(); ++c) rule += std::string(widths[c] + 2, '-') + "+";
  std::string text;
  for (size_t r = 0; r < table.size(); ++r) {
    text += "  " + table[r][0] + std::string(widths[0] - table[r][0].size(), ' ') + (r == 0 ? "  " : " |");
    for (size_t c = 1; c < widths.size(); ++c) {
      text += " " + table[r][c] + std::string(widths[c] - table[r][c].size(), ' ') + (r == 0 ? "  " : " |");
    }
    while (text.back() == ' ') text.pop_back();
    text += "\n" + rule + "\n";
  }
  return text;
}

}  // namespace

std::string Layout::describe(const Shape& global_shape) const {
  std::string text;
  for (int64_t index = 0; index < mesh().num_devices(); ++index) {
    const Shape coordinate = mesh().coordinate_of_index(index);
    text += "device " + std::to_string(mesh().devices()[static_cast<size_t>(index)]) + " at (";
    for (int64_t a = 0; a < coordinate.size(); ++a) text += (a == 0 ? "" : ", ") + std::to_string(coordinate[a]);
    text += "): " + box_at(global_shape, index).str() + "\n";
  }
  return text + picture_of(*this, global_shape);
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << layout.str(); }

Span1 split_part(int64_t n, int64_t parts, int64_t index) {
  const int64_t base = n / parts;
  const int64_t longer = n % parts;
  return {index * base + std::min(index, longer), base + (index < longer ? 1 : 0)};
}

std::string TensorMeta::str() const {
  return std::string(name_of(dtype)) + " " + global_shape.str() + " " + layout.str() + " on " +
         (layout ? layout.mesh().sizes_str() : "no mesh");
}

const TensorMeta* intern_meta(const Shape& global_shape, DType dtype, const Layout& layout) {
  size_t hash = mix(std::hash<const void*>()(layout.data()), static_cast<size_t>(dtype));
  for (int64_t size : global_shape) hash = mix(hash, static_cast<size_t>(size));
  return intern(hash, TensorMeta{global_shape, dtype, layout}, [](const TensorMeta& a, const TensorMeta& b) {
    return a.global_shape == b.global_shape && a.dtype == b.dtype && a.layout == b.layout;
  });
}

DeviceBinding block_binding(int64_t num_devices, int32_t num_nodes) {
  DTORCH_CHECK(num_nodes > 0 && num_devices >= 0, std::to_string(num_devices) + " on " + std::to_string(num_nodes));
  DeviceBinding binding;
  binding.num_nodes = num_nodes;
  for (int32_t node = 0; node < num_nodes; ++node) {
    const int64_t count = split_part(num_devices, num_nodes, node).size;
    for (int32_t slot = 0; slot < count; ++slot) {
      binding.node_of_device.push_back(node);
      binding.slot_of_device.push_back(slot);
    }
  }
  return binding;
}

}  // namespace dtorch
