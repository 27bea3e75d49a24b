// Layout: the one definition of who holds what (invariant I1). A Layout is a mesh, one placement an axis, and for each
// tensor dim the ordered list of axes that split it. It is independent of the tensor's sizes. Interned: a handle of one
// pointer; equal layouts share it. TensorMeta adds global shape and dtype and is interned likewise. Thread-safe.
//
// Split rule: n items over k parts: the first n mod k parts hold ceil(n/k), the others floor(n/k). A dim split by
// several axes is split by one after the other, in order, each step splitting what the step before left. Parts may be
// empty.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "mesh/device_mesh.h"
#include "mesh/dtype.h"
#include "mesh/placement.h"
#include "mesh/shape.h"

namespace dtorch {

using AxisList = InlineVector<int8_t, kMaxAxes>;

struct LayoutData {
  DeviceMesh mesh;
  Placements placements;  // normalised: dims >= 0, Replicate on axes of size 1
  // Axes that shard a dim, outermost first; grouped by tensor dim (dims ascending). Axes without Shard are not in it.
  AxisList shard_order;
};

class Layout {
 public:
  Layout() = default;
  // Shards of one dim by several axes are split in mesh axis order. Throws MeshError when the number of
  // placements isn't the number of axes, ShapeError when a dim is outside [-ndim, ndim); with the place of the call.
  Layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim,
         std::source_location where = std::source_location::current());
  // `order` lists axes, outermost first; axes that aren't named follow in mesh order. Repeated or unknown axes:
  // KeyError.
  Layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim, const std::vector<std::string>& order,
         std::source_location where = std::source_location::current());
  // `order` as in LayoutData::shard_order or any superset of its axes.
  Layout(const DeviceMesh& mesh, const Placements& placements, int64_t ndim, const AxisList& order,
         std::source_location where = std::source_location::current());
  static Layout replicated(const DeviceMesh& mesh);

  explicit operator bool() const { return data_ != nullptr; }
  const DeviceMesh& mesh() const { return data_->mesh; }
  const Placements& placements() const { return data_->placements; }
  const Placement& placement(int64_t axis) const { return data_->placements[axis]; }
  const AxisList& shard_order() const { return data_->shard_order; }
  AxisList axes_of_dim(int64_t dim) const;  // outermost first
  bool is_replicated() const;
  bool has_partial() const;
  bool order_is_default() const;  // every dim is split in mesh axis order

  // The part of a tensor of `global_shape` that the device at `mesh_index` holds (the whole for Replicate and Partial
  // axes).
  Box box_at(const Shape& global_shape, int64_t mesh_index) const;
  // As box_at; the device must be a member of the mesh.
  Box box_of(const Shape& global_shape, int64_t device) const;
  Shape local_shape(const Shape& global_shape, int64_t device) const { return box_of(global_shape, device).size; }
  // The layout that results when this one's placements become `target` on the same mesh: axes that keep their Shard
  // keep their order, added ones are innermost (several added: mesh axis order).
  Layout with_placements(const Placements& target, int64_t ndim,
                         std::source_location where = std::source_location::current()) const;
  // This one with every Partial axis Replicate: where the value is once nothing is pending.
  Layout without_partial() const;

  std::string str() const;        // {Shard(0), Replicate()}, with ", order {tp, dp}" when not default
  std::string order_str() const;  // {tp, dp}: shard_order by name
  // One line a device (number, coordinate, box); up to two dims also as a picture of who holds which box.
  std::string describe(const Shape& global_shape) const;
  const LayoutData* data() const { return data_; }
  friend bool operator==(const Layout& a, const Layout& b) { return a.data_ == b.data_; }

 private:
  const LayoutData* data_ = nullptr;
};
std::ostream& operator<<(std::ostream& out, const Layout& layout);

// Part `index` of n items over `parts`: {offset, size}.
struct Span1 {
  int64_t offset = 0;
  int64_t size = 0;
};
Span1 split_part(int64_t n, int64_t parts, int64_t index);

// What is known of a tensor without its data. Interned, lives as long as the process: compare by pointer.
struct TensorMeta {
  Shape global_shape;
  DType dtype = kFloat32;
  Layout layout;
  int64_t num_bytes() const { return global_shape.num_elements() * size_of(dtype); }
  std::string str() const;  // float32 [4, 8] {Shard(0), Replicate()} on cpu mesh (dp=2, tp=2)
};
const TensorMeta* intern_meta(const Shape& global_shape, DType dtype, const Layout& layout);

// device number -> node (index of the Sub-Controller) and slot on it. Replaced as a whole when it changes.
struct DeviceBinding {
  std::vector<int32_t> node_of_device;
  std::vector<int32_t> slot_of_device;
  int32_t num_nodes = 0;
  int64_t num_devices() const { return static_cast<int64_t>(node_of_device.size()); }
  int32_t node_of(int64_t device) const { return node_of_device.at(static_cast<size_t>(device)); }
  int32_t slot_of(int64_t device) const { return slot_of_device.at(static_cast<size_t>(device)); }
};
// Devices in blocks: the first num_devices mod num_nodes nodes get one more.
DeviceBinding block_binding(int64_t num_devices, int32_t num_nodes);

}  // namespace dtorch
