#include "mesh/closed_form.h"

#include <algorithm>

namespace dtorch {
namespace {

// Parts of a dim that the axes of `longer` split are parts of those that the axes of `shorter` do: the same steps of
// splitting, and more.
bool is_prefix(const AxisList& shorter, const AxisList& longer) {
  return shorter.size() <= longer.size() && std::equal(shorter.begin(), shorter.end(), longer.begin());
}

// The dim that an axis splits, or -1.
int64_t dim_of(const Layout& layout, int64_t axis) {
  const Placement& placement = layout.placement(axis);
  return placement.is_shard() ? placement.dim : -1;
}

// The sum over an axis's positions of the product of two parts of different dims: those of n and m items over k.
int64_t sum_of_products(int64_t n, int64_t m, int64_t k) {
  return k * (n / k) * (m / k) + (n / k) * (m % k) + (m / k) * (n % k) + std::min(n % k, m % k);
}

int64_t num_counted(const DeviceMesh& mesh, int64_t axis, const FirstOnly& first_only) {
  return first_only[axis] ? 1 : mesh.shape()[axis];
}

}  // namespace

int64_t elements_held(const Layout& layout, const Shape& shape, const FirstOnly& first_only) {
  // The parts of a dim, over the positions of the axes that split it, add up to the dim.
  int64_t elements = shape.num_elements();
  for (int64_t axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (dim_of(layout, axis) < 0) elements *= num_counted(layout.mesh(), axis, first_only);
  }
  return elements;
}

std::optional<int64_t> elements_in_common(const Layout& from, const Layout& to, const Shape& shape,
                                          const FirstOnly& first_only) {
  int64_t elements = 1;
  InlineVector<bool, kMaxDims> done;  // dims that are in the product
  for (int64_t dim = 0; dim < shape.ndim(); ++dim) done.push_back(false);
  for (int64_t axis = 0; axis < from.mesh().num_axes(); ++axis) {
    const int64_t from_dim = dim_of(from, axis), to_dim = dim_of(to, axis);
    if (from_dim < 0 && to_dim < 0) {
      elements *= num_counted(from.mesh(), axis, first_only);
      continue;
    }
    if (first_only[axis]) return std::nullopt;
    if (from_dim < 0 || to_dim < 0 || from_dim == to_dim) continue;
    // It moves from one dim to another, which it alone splits.
    const bool alone = from.axes_of_dim(from_dim).size() == 1 && to.axes_of_dim(from_dim).size() == 0 &&
                       to.axes_of_dim(to_dim).size() == 1 && from.axes_of_dim(to_dim).size() == 0;
    if (!alone) return std::nullopt;
    elements *= sum_of_products(shape[from_dim], shape[to_dim], from.mesh().shape()[axis]);
    done[from_dim] = done[to_dim] = true;
  }
  for (int64_t dim = 0; dim < shape.ndim(); ++dim) {
    if (done[dim]) continue;
    const AxisList before = from.axes_of_dim(dim), after = to.axes_of_dim(dim);
    if (!is_prefix(before, after) && !is_prefix(after, before)) return std::nullopt;
    elements *= shape[dim];  // the finer parts, over the positions of the axes that split them, add up to the dim
  }
  return elements;
}

bool splits_further(const Layout& from, const Layout& to, int64_t ndim) {
  for (int64_t dim = 0; dim < ndim; ++dim) {
    if (!is_prefix(from.axes_of_dim(dim), to.axes_of_dim(dim))) return false;
  }
  return true;
}

}  // namespace dtorch
