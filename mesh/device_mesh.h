// DeviceMesh: an n-dimensional array of device numbers. Interned: a handle of one pointer, equal meshes share it.
// Thread-safe. `where`, always the last, defaulted parameter: the place of the call, which errors name.
#pragma once
#include <concepts>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/shape.h"
#include "runtime/base/source_location.h"

namespace dtorch {

inline constexpr int kMaxAxes = 6;

struct MeshData {
  std::string kind;                // "cpu" or "cuda"
  Shape shape;                     // devices along each axis
  std::vector<int64_t> devices;    // row-major
  std::vector<std::string> names;  // one an axis; empty when unnamed
};

// An axis by name, with the place where it was named.
struct AxisName {
  template <class Text>
  requires std::convertible_to<const Text&, std::string_view> AxisName(
      const Text& text, std::source_location where = std::source_location::current())
      : name(text), where(where) {}
  std::string_view name;
  std::source_location where;
};

class DeviceMesh {
 public:
  DeviceMesh() = default;
  // Throws MeshError: repeated, negative, or too few / many device numbers; repeated or empty names; unknown kind; more
  // than kMaxAxes axes.
  DeviceMesh(std::string kind, Shape shape, std::vector<int64_t> devices, std::vector<std::string> names = {},
             std::source_location where = std::source_location::current());

  explicit operator bool() const { return data_ != nullptr; }
  const std::string& kind() const { return data_->kind; }
  const Shape& shape() const { return data_->shape; }
  int64_t num_axes() const { return data_->shape.size(); }
  int64_t num_devices() const { return static_cast<int64_t>(data_->devices.size()); }
  const std::vector<int64_t>& devices() const { return data_->devices; }
  const std::vector<std::string>& axis_names() const { return data_->names; }

  // Throws KeyError that lists the names. On a mesh without names the labels ("axis 0") are accepted, here and below.
  int64_t axis(std::string_view name, std::source_location where = std::source_location::current()) const;
  bool has_axis(std::string_view name) const;
  std::string axis_label(int64_t axis) const;  // "tp", or "axis 1" when unnamed
  int64_t size(std::string_view name, std::source_location where = std::source_location::current()) const {
    return shape()[axis(name, where)];
  }
  // Position of a device in the mesh's row-major list, -1 when it isn't a member.
  int64_t index_of(int64_t device) const;
  Shape coordinate_of_index(int64_t index) const;
  int64_t index_of_coordinate(const Shape& coordinate) const;

  // The sub-mesh at one position of an axis; that axis goes away.
  DeviceMesh slice(std::string_view axis, int64_t position,
                   std::source_location where = std::source_location::current()) const;
  // The 1-D mesh of one axis; legal only if the other axes have size 1 (the error suggests slice or unbind).
  DeviceMesh operator[](AxisName axis) const;
  std::vector<DeviceMesh> unbind(std::string_view axis,
                                 std::source_location where = std::source_location::current()) const;
  // Merges neighbouring axes into one.
  DeviceMesh flatten(const std::vector<std::string>& axes, std::string name,
                     std::source_location where = std::source_location::current()) const;
  // Replaces one axis by several whose sizes multiply to it.
  DeviceMesh split(std::string_view axis, const Shape& sizes, const std::vector<std::string>& names,
                   std::source_location where = std::source_location::current()) const;

  std::string str() const;        // cpu mesh (dp=2, tp=2) of devices [[0, 1], [2, 3]]
  std::string sizes_str() const;  // cpu mesh (dp=2, tp=2)
  std::string describe() const;   // several lines: the device numbers in rows, with the positions on the axes
  const MeshData* data() const { return data_; }
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b) { return a.data_ == b.data_; }

 private:
  const MeshData* data_ = nullptr;  // interned, lives as long as the process
};
std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);

// Devices 0 .. product(shape) - 1 in row-major order. Axis names are optional.
DeviceMesh init_device_mesh(const std::string& kind, const Shape& shape, std::vector<std::string> names = {},
                            std::source_location where = std::source_location::current());

}  // namespace dtorch
