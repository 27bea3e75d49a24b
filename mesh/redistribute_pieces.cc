// The pieces of one stage of a redistribution for one device: box intersection, and the choice of who sends.
#include <algorithm>

#include "mesh/redistribute_plan.h"

namespace dtorch {
namespace {

// Positions on some axes of a mesh, as offsets of the row-major index, ascending.
using IndexOffsets = std::vector<int64_t>;

Shape index_strides(const DeviceMesh& mesh) { return contiguous_strides(mesh.shape()); }

// Every combination of positions on `axes`, in mesh order (axes ascending).
IndexOffsets offsets_over(const DeviceMesh& mesh, const AxisList& axes) {
  const Shape strides = index_strides(mesh);
  IndexOffsets offsets{0};
  for (int8_t axis : axes) {
    IndexOffsets next;
    next.reserve(offsets.size() * static_cast<size_t>(mesh.shape()[axis]));
    for (int64_t offset : offsets) {
      for (int64_t position = 0; position < mesh.shape()[axis]; ++position) {
        next.push_back(offset + position * strides[axis]);
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

// One part of one dim that overlaps the destination box.
struct DimPart {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t index_offset = 0;  // of the devices that hold it
};

// The parts of `dim` in ascending order, cut to [begin, begin + size).
std::vector<DimPart> parts_of_dim(const Layout& layout, const Shape& shape, int64_t dim, int64_t begin, int64_t size) {
  const Shape strides = index_strides(layout.mesh());
  std::vector<DimPart> parts{{0, shape[dim], 0}};
  for (int8_t axis : layout.axes_of_dim(dim)) {
    std::vector<DimPart> next;
    for (const DimPart& part : parts) {
      for (int64_t position = 0; position < layout.mesh().shape()[axis]; ++position) {
        const Span1 span = split_part(part.size, layout.mesh().shape()[axis], position);
        const DimPart cut{part.begin + span.offset, span.size, part.index_offset + position * strides[axis]};
        if (cut.size > 0 && cut.begin < begin + size && cut.begin + cut.size > begin) next.push_back(cut);
      }
    }
    parts = std::move(next);
  }
  for (DimPart& part : parts) {
    const int64_t end = std::min(part.begin + part.size, begin + size);
    part.begin = std::max(part.begin, begin);
    part.size = end - part.begin;
  }
  return parts;
}

// Chooses which of the replicas of a part sends to one device.
class HolderChoice {
 public:
  HolderChoice(const Stage& stage, int64_t device, int64_t to_index, IndexOffsets replicas,
               const DeviceBinding& binding)
      : mesh_(stage.from->layout.mesh()), replicas_(std::move(replicas)), device_(device), binding_(binding) {
    own_index_ = mesh_.index_of(device);
    const Layout& to = stage.to->layout;
    // Own position on the source's replicated axes; when the meshes are equal it spreads the load evenly.
    if (mesh_ == to.mesh()) {
      const Shape coordinate = mesh_.coordinate_of_index(own_index_);
      const Shape strides = index_strides(mesh_);
      for (int64_t axis = 0; axis < mesh_.num_axes(); ++axis) {
        if (stage.from->layout.placement(axis).is_replicate()) own_offset_ += coordinate[axis] * strides[axis];
      }
      key_ = std::find(replicas_.begin(), replicas_.end(), own_offset_) - replicas_.begin();
      return;
    }
    // Else the device's rank among those that want the same box, turned by which box that is.
    const Shape coordinate = to.mesh().coordinate_of_index(to_index);
    int64_t rank = 0;
    int64_t box_number = 0;
    for (int64_t axis = 0; axis < to.mesh().num_axes(); ++axis) {
      int64_t& number = to.placement(axis).is_shard() ? box_number : rank;
      number = number * to.mesh().shape()[axis] + coordinate[axis];
    }
    key_ = rank + box_number;
  }

  // `base`: index of the holder at position 0 of all replicated axes.
  int64_t holder_of(int64_t base) const {
    const auto number = [&](size_t i) { return mesh_.devices()[static_cast<size_t>(base + replicas_[i])]; };
    const size_t count = replicas_.size();
    if (count == 1) return number(0);
    if (own_index_ >= base && std::binary_search(replicas_.begin(), replicas_.end(), own_index_ - base)) return device_;
    const int32_t node = binding_.node_of(device_);
    const size_t preferred = static_cast<size_t>(key_) % count;
    if (binding_.node_of(number(preferred)) == node) return number(preferred);
    std::vector<int64_t> near;
    for (size_t i = 0; i < count; ++i) {
      if (binding_.node_of(number(i)) == node) near.push_back(number(i));
    }
    return near.empty() ? number(preferred) : near[static_cast<size_t>(key_) % near.size()];
  }

 private:
  DeviceMesh mesh_;
  IndexOffsets replicas_;
  int64_t device_;
  int64_t own_index_ = -1;
  int64_t own_offset_ = 0;
  int64_t key_ = 0;
  const DeviceBinding& binding_;
};

bool contains(const AxisList& axes, int64_t axis) {
  return std::find(axes.begin(), axes.end(), static_cast<int8_t>(axis)) != axes.end();
}

}  // namespace

std::vector<PlanPiece> pieces_for(const Stage& stage, int64_t device, const DeviceBinding& binding) {
  const Layout& from = stage.from->layout;
  const Layout& to = stage.to->layout;
  const Shape& shape = stage.from->global_shape;
  const int64_t to_index = to.mesh().index_of(device);
  DTORCH_CHECK(to_index >= 0, "device " + std::to_string(device) + " isn't in " + to.mesh().str());
  const Box box = to.box_at(shape, to_index);
  if (box.empty()) return {};

  const bool same_mesh = from.mesh() == to.mesh();
  const Shape coordinate = to.mesh().coordinate_of_index(to_index);
  const Shape strides = index_strides(from.mesh());
  int64_t kept_offset = 0;  // position on Partial axes that stay as they are
  AxisList replicated;
  for (int64_t axis = 0; axis < from.mesh().num_axes(); ++axis) {
    const Placement& p = from.placement(axis);
    if (p.is_replicate()) replicated.push_back(static_cast<int8_t>(axis));
    if (!p.is_partial() || contains(stage.folded_axes, axis)) continue;
    DTORCH_CHECK(same_mesh && p == to.placement(axis), stage.from->str() + " to " + stage.to->str());
    kept_offset += coordinate[axis] * strides[axis];
  }
  for (int64_t axis = 0; axis < to.mesh().num_axes(); ++axis) {
    if (!to.placement(axis).is_partial(kSum) || coordinate[axis] == 0) continue;
    const bool kept = same_mesh && from.placement(axis).is_partial(kSum) && !contains(stage.folded_axes, axis);
    if (!kept) return {{box, {}}};
  }

  std::vector<std::vector<DimPart>> parts;
  for (int64_t dim = 0; dim < shape.ndim(); ++dim) {
    parts.push_back(parts_of_dim(from, shape, dim, box.offset[dim], box.size[dim]));
  }
  const IndexOffsets folds = offsets_over(from.mesh(), stage.folded_axes);
  const HolderChoice choice(stage, device, to_index, offsets_over(from.mesh(), replicated), binding);
  std::vector<PlanPiece> pieces;
  Shape at(shape.size(), 0);  // which part of each dim
  while (true) {
    PlanPiece piece{{Shape(shape.size(), 0), Shape(shape.size(), 0)}, {}};
    int64_t base = kept_offset;
    for (int64_t dim = 0; dim < shape.ndim(); ++dim) {
      const DimPart& part = parts[static_cast<size_t>(dim)][static_cast<size_t>(at[dim])];
      piece.box.offset[dim] = part.begin;
      piece.box.size[dim] = part.size;
      base += part.index_offset;
    }
    for (int64_t fold : folds) piece.sources.push_back(choice.holder_of(base + fold));
    pieces.push_back(std::move(piece));
    int64_t dim = shape.ndim() - 1;
    while (dim >= 0 && ++at[dim] == static_cast<int64_t>(parts[static_cast<size_t>(dim)].size())) at[dim--] = 0;
    if (dim < 0) break;
  }
  return pieces;
}

int64_t bytes_received(const Stage& stage, int64_t device, const DeviceBinding& binding) {
  int64_t elements = 0;
  for (const PlanPiece& piece : pieces_for(stage, device, binding)) {
    const int64_t others =
        static_cast<int64_t>(piece.sources.size()) - std::count(piece.sources.begin(), piece.sources.end(), device);
    elements += others * piece.box.num_elements();
  }
  return elements * size_of(stage.to->dtype);
}

}  // namespace dtorch
