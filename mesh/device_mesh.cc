// DeviceMesh: interning, coordinates, and meshes made from meshes.
#include "mesh/device_mesh.h"

#include <memory>
#include <mutex>
#include <ostream>
#include <unordered_map>
#include <unordered_set>

#include "mesh/mesh_kinds.h"

namespace dtorch {
namespace {

size_t mix(size_t hash, size_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 7); }

size_t hash_of(const MeshData& data) {
  size_t hash = std::hash<std::string>()(data.kind);
  for (int64_t size : data.shape) hash = mix(hash, static_cast<size_t>(size));
  for (int64_t device : data.devices) hash = mix(hash, static_cast<size_t>(device));
  for (const std::string& name : data.names) hash = mix(hash, std::hash<std::string>()(name));
  return hash;
}

bool equal(const MeshData& a, const MeshData& b) {
  return a.kind == b.kind && a.shape == b.shape && a.devices == b.devices && a.names == b.names;
}

const MeshData* intern(MeshData data) {
  static std::mutex mutex;
  static auto* table = new std::unordered_multimap<size_t, std::unique_ptr<const MeshData>>();
  const size_t hash = hash_of(data);
  std::lock_guard lock(mutex);
  auto [first, last] = table->equal_range(hash);
  for (; first != last; ++first) {
    if (equal(*first->second, data)) return first->second.get();
  }
  return table->emplace(hash, std::make_unique<const MeshData>(std::move(data)))->second.get();
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void check_names(const std::vector<std::string>& names, int64_t num_axes, const std::source_location& where) {
  if (names.empty()) return;
  if (static_cast<int64_t>(names.size()) != num_axes) {
    throw MeshError("a mesh of " + std::to_string(num_axes) + " axes got " + std::to_string(names.size()) + " names {" +
                    join(names) + "}; give one an axis or none" + called_at(where));
  }
  std::unordered_set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty()) throw MeshError("a mesh axis has an empty name: {" + join(names) + "}" + called_at(where));
    if (!seen.insert(name).second) throw MeshError("mesh axis name \"" + name + "\" is given twice" + called_at(where));
  }
}

int64_t check_shape(const Shape& shape, const std::source_location& where) {
  if (shape.size() > kMaxAxes) {
    throw MeshError("a mesh of " + std::to_string(shape.size()) + " axes; at most " + std::to_string(kMaxAxes) +
                    " are possible" + called_at(where));
  }
  constexpr int64_t kMaxDevices = int64_t{1} << 24;
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 1 || size > kMaxDevices || (count *= size) > kMaxDevices) {
      throw MeshError("mesh shape " + shape.str() + " needs axes of size 1 or more and at most 2^24 devices" +
                      called_at(where));
    }
  }
  return count;
}

}  // namespace

DeviceMesh::DeviceMesh(std::string kind, Shape shape, std::vector<int64_t> devices, std::vector<std::string> names,
                       std::source_location where) {
  if (kind != "cpu" && kind != "cuda") {
    throw MeshError("unknown mesh kind \"" + kind + "\"; \"cpu\" and \"cuda\" are known" + called_at(where));
  }
  const std::string problem = problem_of_mesh_kind(kind);
  if (!problem.empty()) throw MeshError(problem + called_at(where));
  const int64_t count = check_shape(shape, where);
  if (static_cast<int64_t>(devices.size()) != count) {
    throw MeshError("mesh shape " + shape.str() + " needs " + std::to_string(count) + " device numbers, got " +
                    std::to_string(devices.size()) + called_at(where));
  }
  std::unordered_set<int64_t> seen;
  for (int64_t device : devices) {
    if (device < 0) throw MeshError("device number " + std::to_string(device) + " is negative" + called_at(where));
    if (!seen.insert(device).second) {
      throw MeshError("device number " + std::to_string(device) + " stands twice in a mesh" + called_at(where));
    }
  }
  check_names(names, shape.size(), where);
  data_ = intern({std::move(kind), shape, std::move(devices), std::move(names)});
}

int64_t DeviceMesh::axis(std::string_view name, std::source_location where) const {
  for (int64_t a = 0; a < num_axes(); ++a) {
    if (axis_label(a) == name) return a;
  }
  std::string labels;
  for (int64_t a = 0; a < num_axes(); ++a) labels += (a == 0 ? "" : ", ") + axis_label(a);
  throw KeyError("no mesh axis \"" + std::string(name) + "\"; the axes of " + str() + " are {" + labels + "}" +
                 called_at(where));
}

bool DeviceMesh::has_axis(std::string_view name) const {
  for (int64_t a = 0; a < num_axes(); ++a) {
    if (axis_label(a) == name) return true;
  }
  return false;
}

std::string DeviceMesh::axis_label(int64_t axis) const {
  DTORCH_CHECK(axis >= 0 && axis < num_axes(), std::to_string(axis) + " in " + str());
  if (axis_names().empty()) return "axis " + std::to_string(axis);
  return axis_names()[static_cast<size_t>(axis)];
}

int64_t DeviceMesh::index_of(int64_t device) const {
  const std::vector<int64_t>& list = devices();
  const int64_t guess = device - list.front();  // most meshes are a run of numbers
  if (guess >= 0 && guess < num_devices() && list[static_cast<size_t>(guess)] == device) return guess;
  const auto found = std::find(list.begin(), list.end(), device);
  return found == list.end() ? -1 : found - list.begin();
}

Shape DeviceMesh::coordinate_of_index(int64_t index) const {
  DTORCH_CHECK(index >= 0 && index < num_devices(), std::to_string(index) + " in " + str());
  Shape coordinate(num_axes(), 0);
  for (int64_t a = num_axes() - 1; a >= 0; --a) {
    coordinate[a] = index % shape()[a];
    index /= shape()[a];
  }
  return coordinate;
}

int64_t DeviceMesh::index_of_coordinate(const Shape& coordinate) const {
  DTORCH_CHECK(coordinate.size() == num_axes(), coordinate.str() + " in " + str());
  int64_t index = 0;
  for (int64_t a = 0; a < num_axes(); ++a) {
    DTORCH_CHECK(coordinate[a] >= 0 && coordinate[a] < shape()[a], coordinate.str() + " in " + str());
    index = index * shape()[a] + coordinate[a];
  }
  return index;
}

DeviceMesh DeviceMesh::slice(std::string_view name, int64_t position, std::source_location where) const {
  const int64_t at = axis(name, where);
  if (position < 0 || position >= shape()[at]) {
    throw MeshError("position " + std::to_string(position) + " is outside axis " + axis_label(at) + " of size " +
                    std::to_string(shape()[at]) + called_at(where));
  }
  Shape sizes = shape();
  sizes.erase(sizes.begin() + at);
  std::vector<std::string> names = axis_names();
  if (!names.empty()) names.erase(names.begin() + at);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < num_devices(); ++i) {
    if (coordinate_of_index(i)[at] == position) kept.push_back(devices()[static_cast<size_t>(i)]);
  }
  return DeviceMesh(kind(), sizes, std::move(kept), std::move(names), where);
}

DeviceMesh DeviceMesh::operator[](AxisName axis_name) const {
  const auto& [name, where] = axis_name;
  const int64_t at = axis(name, where);
  if (shape()[at] != num_devices()) {
    throw MeshError("mesh[\"" + std::string(name) + "\"] is one row of " + str() +
                    " only if the other axes have size 1; use slice() for one position of another axis, or unbind() "
                    "for all of them" +
                    called_at(where));
  }
  std::vector<std::string> names;
  if (!axis_names().empty()) names.push_back(axis_label(at));
  return DeviceMesh(kind(), {shape()[at]}, devices(), std::move(names), where);
}

std::vector<DeviceMesh> DeviceMesh::unbind(std::string_view name, std::source_location where) const {
  std::vector<DeviceMesh> meshes;
  for (int64_t position = 0; position < size(name, where); ++position) meshes.push_back(slice(name, position, where));
  return meshes;
}

DeviceMesh DeviceMesh::flatten(const std::vector<std::string>& axes, std::string name,
                               std::source_location where) const {
  if (axes.empty()) throw MeshError("flatten needs at least one axis" + called_at(where));
  const int64_t first = axis(axes.front(), where);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axis(axes[i], where) != first + static_cast<int64_t>(i)) {
      throw MeshError("flatten merges neighbouring axes in mesh order; {" + join(axes) + "} aren't in " + str() +
                      called_at(where));
    }
  }
  const int64_t last = first + static_cast<int64_t>(axes.size());
  Shape sizes;
  std::vector<std::string> names;
  for (int64_t a = 0; a < num_axes(); ++a) {
    if (a > first && a < last) {
      sizes.back() *= shape()[a];
      continue;
    }
    sizes.push_back(shape()[a]);
    names.push_back(a == first ? name : axis_label(a));
  }
  if (axis_names().empty()) names.clear();
  return DeviceMesh(kind(), sizes, devices(), std::move(names), where);
}

DeviceMesh DeviceMesh::split(std::string_view name, const Shape& sizes, const std::vector<std::string>& names,
                             std::source_location where) const {
  const int64_t at = axis(name, where);
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (size < 1 || __builtin_mul_overflow(product, size, &product)) product = -1;
    if (product < 0) break;
  }
  if (product != shape()[at]) {
    throw MeshError("axis " + axis_label(at) + " of size " + std::to_string(shape()[at]) + " can't be split into " +
                    sizes.str() + called_at(where));
  }
  if (axis_names().empty() ? !names.empty() : static_cast<int64_t>(names.size()) != sizes.size()) {
    throw MeshError("split of axis " + axis_label(at) + " into " + sizes.str() + " got names {" + join(names) +
                    "}; give one a new axis" + (axis_names().empty() ? ", none on a mesh without names" : "") +
                    called_at(where));
  }
  if (num_axes() - 1 + sizes.size() > kMaxAxes)
    throw MeshError("a mesh has at most " + std::to_string(kMaxAxes) + " axes" + called_at(where));
  Shape new_shape;
  std::vector<std::string> new_names;
  for (int64_t a = 0; a < num_axes(); ++a) {
    if (a != at) {
      new_shape.push_back(shape()[a]);
      new_names.push_back(axis_label(a));
      continue;
    }
    for (int64_t size : sizes) new_shape.push_back(size);
    new_names.insert(new_names.end(), names.begin(), names.end());
  }
  if (axis_names().empty()) new_names.clear();
  return DeviceMesh(kind(), new_shape, devices(), std::move(new_names), where);
}

std::string DeviceMesh::sizes_str() const {
  if (!data_) return "no mesh";
  std::string text = kind() + " mesh (";
  for (int64_t a = 0; a < num_axes(); ++a) {
    text += a == 0 ? "" : ", ";
    if (!axis_names().empty()) text += axis_label(a) + "=";
    text += std::to_string(shape()[a]);
  }
  return text + ")";
}

namespace {

// Rows of device numbers in brackets, as deep as the mesh has axes: [[0, 1], [2, 3]].
std::string nested_rows(const DeviceMesh& mesh, int64_t axis, int64_t first) {
  if (axis == mesh.num_axes()) return std::to_string(mesh.devices()[static_cast<size_t>(first)]);
  int64_t stride = 1;
  for (int64_t a = axis + 1; a < mesh.num_axes(); ++a) stride *= mesh.shape()[a];
  std::string text = "[";
  for (int64_t i = 0; i < mesh.shape()[axis]; ++i) {
    text += (i == 0 ? "" : ", ") + nested_rows(mesh, axis + 1, first + i * stride);
  }
  return text + "]";
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

}  // namespace

std::string DeviceMesh::str() const {
  if (!data_) return "no mesh";
  constexpr int64_t kShown = 16;
  if (num_devices() <= kShown) {
    return sizes_str() + " of devices " + (num_axes() == 0 ? "[" : "") + nested_rows(*this, 0, 0) +
           (num_axes() == 0 ? "]" : "");
  }
  std::string text = sizes_str() + " of devices [";
  for (int64_t i = 0; i < kShown; ++i) text += std::to_string(devices()[static_cast<size_t>(i)]) + ", ";
  return text + "..., " + std::to_string(devices().back()) + "]";
}

std::string DeviceMesh::describe() const {
  std::string text = sizes_str() + "\n";
  if (!data_ || num_axes() == 0) return data_ ? text + "  " + std::to_string(devices()[0]) + "\n" : text;
  const auto position = [&](int64_t axis, int64_t i) { return axis_label(axis) + "=" + std::to_string(i); };
  const int64_t columns = shape()[num_axes() - 1];
  const bool has_rows = num_axes() > 1;
  const int64_t rows = has_rows ? shape()[num_axes() - 2] : 1;
  size_t width = position(num_axes() - 1, columns - 1).size();
  for (int64_t device : devices()) width = std::max(width, std::to_string(device).size());
  const size_t label_width = has_rows ? position(num_axes() - 2, rows - 1).size() : 0;
  for (int64_t first = 0; first < num_devices(); first += rows * columns) {
    const Shape coordinate = coordinate_of_index(first);
    std::string title;
    for (int64_t a = 0; a + 2 < num_axes(); ++a) title += (a == 0 ? "" : ", ") + position(a, coordinate[a]);
    if (!title.empty()) text += title + ":\n";
    text += "  " + padded("", label_width);
    for (int64_t c = 0; c < columns; ++c) text += "  " + padded(position(num_axes() - 1, c), width);
    text += "\n";
    for (int64_t r = 0; r < rows; ++r) {
      text += "  " + padded(has_rows ? position(num_axes() - 2, r) : "", label_width);
      for (int64_t c = 0; c < columns; ++c) {
        text += "  " + padded(std::to_string(devices()[static_cast<size_t>(first + r * columns + c)]), width);
      }
      text += "\n";
    }
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) { return out << mesh.str(); }

DeviceMesh init_device_mesh(const std::string& kind, const Shape& shape, std::vector<std::string> names,
                            std::source_location where) {
  std::vector<int64_t> devices(static_cast<size_t>(check_shape(shape, where)));
  for (size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int64_t>(i);
  return DeviceMesh(kind, shape, std::move(devices), std::move(names), where);
}

}  // namespace dtorch
