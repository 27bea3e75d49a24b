// The layout of a reshaped tensor. Old and new dims fall into groups of equal product (dims of size 1 aside); within a
// group the axes keep their order of significance, so the search tries few targets. Each is proved by comparing, for
// every position on the group's axes, the element ranges of the old and the new box. No work is done per element or per
// device.
#include <algorithm>

#include "mesh/signature.h"

namespace dtorch {
namespace {

// The axes that split each dim, outermost first.
using DimAxes = std::vector<AxisList>;

// Element numbers of a box in increasing order: a start and nested loops (count, stride), outermost first. Loops of one
// turn are left out and loops that continue each other are merged, so equal sequences have equal ranges.
struct Ranges {
  bool empty = false;
  int64_t start = 0;
  InlineVector<int64_t, 2 * kMaxDims> loops;
  friend bool operator==(const Ranges&, const Ranges&) = default;
};

// A run of dims [first, last) of the old shape and of the new one with the same number of elements.
struct Group {
  std::vector<int64_t> old_dims;
  std::vector<int64_t> new_dims;
};

class ViewSearch {
 public:
  ViewSearch(const Layout& layout, const Shape& old_shape, const Shape& new_shape)
      : layout_(layout), mesh_shape_(layout.mesh().shape()), old_shape_(old_shape), new_shape_(new_shape) {
    for (int64_t dim = 0; dim < old_shape.ndim(); ++dim) all_old_axes_.push_back(layout.axes_of_dim(dim));
    new_axes_.resize(static_cast<size_t>(new_shape.ndim()));
    old_axes_.resize(static_cast<size_t>(old_shape.ndim()));
  }

  // False when some axis finds no dim; `failed_axis` and `failed_group` then tell which.
  bool run() {
    for (const Group& group : groups()) {
      sequence_.clear();
      for (int64_t dim : group.old_dims) {
        int64_t largest = old_shape_[dim];  // what the axes so far leave in the largest part
        for (int8_t axis : all_old_axes_[static_cast<size_t>(dim)]) {
          sequence_.push_back({axis, dim, largest <= 1});
          largest = split_part(largest, mesh_shape_[axis], 0).size;
        }
      }
      deepest_ = 0;
      if (!place(group, 0, 0)) {
        failed_axis = sequence_[deepest_].axis;
        failed_group = group;
        return false;
      }
    }
    for (int64_t dim = 0; dim < old_shape_.ndim(); ++dim) {
      if (old_shape_[dim] != 1) continue;
      for (int8_t axis : all_old_axes_[static_cast<size_t>(dim)]) deferred_.push_back(axis);
    }
    for (int8_t axis : deferred_) {
      if (place_single(axis)) continue;
      failed_axis = axis;
      return false;
    }
    return true;
  }

  Layout result() const {
    Placements placements = layout_.placements();
    AxisList order;
    for (size_t dim = 0; dim < new_axes_.size(); ++dim) {
      for (int8_t axis : new_axes_[dim]) {
        placements[axis] = Shard(static_cast<int64_t>(dim));
        order.push_back(axis);
      }
    }
    return Layout(layout_.mesh(), placements, new_shape_.ndim(), order);
  }

  int64_t failed_axis = -1;
  Group failed_group;

 private:
  struct Item {
    int8_t axis = 0;
    int64_t dim = 0;
    bool single = false;  // splits parts of at most one item: position 0 holds all, the others nothing
  };

  std::vector<Group> groups() const {
    std::vector<Group> result;
    int64_t i = 0;
    int64_t j = 0;
    while (true) {
      while (i < old_shape_.ndim() && old_shape_[i] == 1) ++i;
      while (j < new_shape_.ndim() && new_shape_[j] == 1) ++j;
      if (i == old_shape_.ndim() || j == new_shape_.ndim()) return result;
      Group group{{i}, {j}};
      int64_t old_product = old_shape_[i++];
      int64_t new_product = new_shape_[j++];
      while (old_product != new_product) {
        const bool take_old = old_product < new_product;
        int64_t& at = take_old ? i : j;
        const int64_t size = take_old ? old_shape_[at] : new_shape_[at];
        if (size != 1) (take_old ? group.old_dims : group.new_dims).push_back(at);
        (take_old ? old_product : new_product) *= size;
        ++at;
      }
      result.push_back(group);
    }
  }

  // Places sequence_[at ...] on the group's new dims from `first` on; leftmost first.
  bool place(const Group& group, size_t at, size_t first) {
    deepest_ = std::max(deepest_, std::min(at, sequence_.empty() ? 0 : sequence_.size() - 1));
    if (at == sequence_.size()) return true;
    const Item item = sequence_[at];
    AxisList& old_list = old_axes_[static_cast<size_t>(item.dim)];
    old_list.push_back(item.axis);
    for (size_t target = first; target < group.new_dims.size(); ++target) {
      AxisList& new_list = new_axes_[static_cast<size_t>(group.new_dims[target])];
      new_list.push_back(item.axis);
      if (equal_everywhere(group, at) && place(group, at + 1, target)) return true;
      new_list.pop_back();
    }
    old_list.pop_back();
    if (!item.single) return false;
    deferred_.push_back(item.axis);
    if (place(group, at + 1, first)) return true;
    deferred_.pop_back();
    return false;
  }

  // An axis whose position 0 holds everything may split any dim that has at most one item left; a dim of size 1 at
  // best.
  bool place_single(int8_t axis) {
    for (const bool size_one : {true, false}) {
      for (int64_t dim = 0; dim < new_shape_.ndim(); ++dim) {
        AxisList& list = new_axes_[static_cast<size_t>(dim)];
        int64_t largest = new_shape_[dim];
        for (int8_t outer : list) largest = split_part(largest, mesh_shape_[outer], 0).size;
        if (largest > 1 || (size_one && new_shape_[dim] != 1)) continue;
        list.push_back(axis);
        return true;
      }
    }
    return false;
  }

  // Whether old and new boxes agree within the group at every position of the axes sequence_[0 .. last].
  bool equal_everywhere(const Group& group, size_t last) const {
    Shape position(mesh_shape_.size(), 0);
    while (true) {
      const Ranges old_ranges = ranges_of(old_shape_, group.old_dims, old_axes_, position);
      if (old_ranges != ranges_of(new_shape_, group.new_dims, new_axes_, position)) return false;
      size_t i = 0;
      while (i <= last && ++position[sequence_[i].axis] == mesh_shape_[sequence_[i].axis])
        position[sequence_[i++].axis] = 0;
      if (i > last) return true;
    }
  }

  Ranges ranges_of(const Shape& shape, const std::vector<int64_t>& dims, const DimAxes& axes,
                   const Shape& position) const {
    Ranges ranges;
    InlineVector<int64_t, 2 * kMaxDims> inner_first;
    int64_t stride = 1;
    for (size_t i = dims.size(); i-- > 0;) {
      const int64_t dim = dims[i];
      Span1 span{0, shape[dim]};
      for (int8_t axis : axes[static_cast<size_t>(dim)]) {
        const Span1 part = split_part(span.size, mesh_shape_[axis], position[axis]);
        span = {span.offset + part.offset, part.size};
      }
      if (span.size == 0) {
        Ranges none;
        none.empty = true;
        return none;
      }
      ranges.start += span.offset * stride;
      if (span.size > 1) {
        const int64_t n = inner_first.size();
        if (n > 0 && inner_first[n - 2] * inner_first[n - 1] == stride)
          inner_first[n - 2] *= span.size;
        else {
          inner_first.push_back(span.size);
          inner_first.push_back(stride);
        }
      }
      stride *= shape[dim];
    }
    ranges.loops = inner_first;
    return ranges;
  }

  const Layout& layout_;
  const Shape& mesh_shape_;
  const Shape& old_shape_;
  const Shape& new_shape_;
  DimAxes all_old_axes_;
  DimAxes old_axes_;  // as far as placed
  DimAxes new_axes_;
  std::vector<Item> sequence_;
  size_t deepest_ = 0;
  AxisList deferred_;
};

// Nothing is held anywhere, so every layout is true: keep dims that stay in place from the left or right, else shard an
// empty dim.
Layout empty_view_layout(const Layout& layout, const Shape& old_shape, const Shape& new_shape) {
  Placements placements = layout.placements();
  for (Placement& p : placements) {
    if (!p.is_shard()) continue;
    const int64_t dim = p.dim;
    const int64_t from_right = old_shape.ndim() - dim;
    const bool same_left =
        dim < new_shape.ndim() && std::equal(old_shape.begin(), old_shape.begin() + dim + 1, new_shape.begin());
    const bool same_right = from_right <= new_shape.ndim() &&
                            std::equal(old_shape.begin() + dim, old_shape.end(), new_shape.end() - from_right);
    if (same_left) continue;
    p = Shard(same_right ? new_shape.ndim() - from_right
                         : std::find(new_shape.begin(), new_shape.end(), 0) - new_shape.begin());
  }
  return Layout(layout.mesh(), placements, new_shape.ndim(), layout.shard_order());
}

std::string refusal(const TensorMeta& input, const Shape& new_shape, const ViewSearch& search) {
  const Layout& layout = input.layout;
  const int64_t axis = search.failed_axis;
  const int64_t dim = layout.placement(axis).dim;
  const int64_t parts = layout.mesh().shape()[axis];
  std::string text = "view of " + input.global_shape.str() + " as " + new_shape.str() +
                     " would cut the shards of dim " + std::to_string(dim) + " (size " +
                     std::to_string(input.global_shape[dim]) + ", " + std::to_string(parts) + " shards on " +
                     (layout.mesh().axis_names().empty() ? "" : "axis ") + layout.mesh().axis_label(axis) + ")";
  const std::vector<int64_t>& new_dims = search.failed_group.new_dims;
  if (new_dims.empty()) return text + ": no dim of the new shape has size 1";
  // The dim the shard would fall on: after those that the old dims to its left fill.
  int64_t outer = 1;
  for (int64_t d : search.failed_group.old_dims) {
    if (d < dim) outer *= input.global_shape[d];
  }
  int64_t target = new_dims.front();
  for (int64_t d : new_dims) {
    target = d;
    if (outer <= 1) break;
    outer /= new_shape[d];
  }
  const std::string size = std::to_string(new_shape[target]);
  if (new_shape[target] % parts != 0) {
    return text + ": dim " + std::to_string(target) + " of size " + size + " is not divisible by " +
           std::to_string(parts);
  }
  return text + ": they aren't whole blocks of dim " + std::to_string(target) + " of size " + size;
}

}  // namespace

std::optional<Layout> view_layout(const TensorMeta& input, const Shape& new_shape, std::string* reason) {
  const Shape& old_shape = input.global_shape;
  const int64_t num_elements = old_shape.num_elements();
  if (num_elements != new_shape.num_elements()) {
    if (reason) {
      *reason = "view of " + old_shape.str() + " as " + new_shape.str() + " changes the number of elements from " +
                std::to_string(num_elements) + " to " + std::to_string(new_shape.num_elements());
    }
    return std::nullopt;
  }
  if (new_shape == old_shape) return input.layout;
  if (num_elements == 0) return empty_view_layout(input.layout, old_shape, new_shape);
  ViewSearch search(input.layout, old_shape, new_shape);
  if (search.run()) return search.result();
  if (reason) *reason = refusal(input, new_shape, search);
  return std::nullopt;
}

}  // namespace dtorch
