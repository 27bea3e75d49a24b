#include "checker/values.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "runtime/client/local_read.h"

namespace dtorch::checker {
namespace {

template <class T>
void set(HostTensor& tensor, int64_t offset, T value) {
  visit_dtype(tensor.dtype(), [&]<class S>() {
    S element;
    if constexpr (std::is_same_v<S, bool>) {
      element = value != T{};
    } else {
      element = static_cast<S>(value);
    }
    std::memcpy(tensor.mutable_bytes() + static_cast<size_t>(offset) * sizeof(S), &element, sizeof(S));
  });
}

// Calls f(row-major offset in the box, row-major offset in the whole).
template <class F>
void for_each_in(const Box& box, const Shape& whole_shape, F&& f) {
  const Shape strides = contiguous_strides(whole_shape);
  const int64_t count = box.num_elements();
  for (int64_t local = 0; local < count; ++local) {
    int64_t rest = local, offset = 0;
    for (int64_t d = box.ndim() - 1; d >= 0; --d) {
      offset += (box.offset[d] + rest % box.size[d]) * strides[d];
      rest /= box.size[d];
    }
    f(local, offset);
  }
}

// Folds what the members of `groups` hold: each inner vector is one group of parts, in mesh order along the axis.
HostTensor fold(const std::vector<HostTensor>& parts, ReduceOp reduce) {
  HostTensor result(parts.front().shape(), parts.front().dtype());
  const bool floating = is_floating(result.dtype());
  for (int64_t e = 0; e < result.num_elements(); ++e) {
    if (floating) {
      double value = parts.front().element<double>(e);
      for (size_t i = 1; i < parts.size(); ++i) {
        const double other = parts[i].element<double>(e);
        if (reduce == kMax) value = std::max(value, other);
        if (reduce == kMin) value = std::min(value, other);
        if (reduce == kSum || reduce == kAvg) value += other;
      }
      set(result, e, reduce == kAvg ? value / static_cast<double>(parts.size()) : value);
    } else {
      int64_t value = parts.front().element<int64_t>(e);
      for (size_t i = 1; i < parts.size(); ++i) {
        const int64_t other = parts[i].element<int64_t>(e);
        value = reduce == kMax ? std::max(value, other) : reduce == kMin ? std::min(value, other) : value + other;
      }
      set(result, e, reduce == kAvg ? value / static_cast<int64_t>(parts.size()) : value);
    }
  }
  return result;
}

// The value of the box that the device at `coordinate` holds: its part folded with the others' along the Partial axes,
// innermost first.
HostTensor folded(const Layout& layout, const std::vector<HostTensor>& locals, Shape coordinate, int64_t axis) {
  const DeviceMesh& mesh = layout.mesh();
  if (axis == mesh.num_axes()) return locals[static_cast<size_t>(mesh.index_of_coordinate(coordinate))];
  if (!layout.placement(axis).is_partial()) return folded(layout, locals, coordinate, axis + 1);
  std::vector<HostTensor> parts;
  for (int64_t i = 0; i < mesh.shape()[axis]; ++i) {
    coordinate[axis] = i;
    parts.push_back(folded(layout, locals, coordinate, axis + 1));
  }
  return fold(parts, layout.placement(axis).reduce);
}

}  // namespace

HostTensor iota(const Shape& shape, DType dtype) {
  HostTensor tensor(shape, dtype);
  for (int64_t e = 0; e < tensor.num_elements(); ++e) set(tensor, e, 0.5 * static_cast<double>(e) - 3);
  return tensor;
}

HostTensor seq(const Shape& shape) {
  HostTensor tensor(shape, kInt64);
  for (int64_t e = 0; e < tensor.num_elements(); ++e) set(tensor, e, e);
  return tensor;
}

HostTensor normal(const Shape& shape, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  HostTensor tensor(shape, dtype);
  for (int64_t e = 0; e < tensor.num_elements(); ++e) {
    double sum = -6;  // of twelve uniform values: close to normal, the same everywhere
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    set(tensor, e, sum);
  }
  return tensor;
}

HostTensor part_of(const HostTensor& whole, const Box& box) {
  HostTensor part(box.size, whole.dtype());
  const size_t size = static_cast<size_t>(size_of(whole.dtype()));
  for_each_in(box, whole.shape(), [&](int64_t local, int64_t offset) {
    std::memcpy(part.mutable_bytes() + static_cast<size_t>(local) * size,
                whole.bytes() + static_cast<size_t>(offset) * size, size);
  });
  return part;
}

HostTensor partial_part(const HostTensor& value, int64_t index, int64_t parts, ReduceOp reduce) {
  HostTensor part(value.shape(), value.dtype());
  // Unlike each other, 1 together, and powers of two but the first: where values have few digits their parts have no
  // error, so that what was equal stays equal.
  const double last = std::ldexp(1, static_cast<int>(-parts - 1));
  const double weight = parts == 1 ? 1 : index == 0 ? 0.75 + last : std::ldexp(1, static_cast<int>(-index - 2));
  for (int64_t e = 0; e < value.num_elements(); ++e) {
    const bool owner = e % parts == index;
    const int64_t distance = 1 + (e + index) % 3;
    if (reduce == kMax || reduce == kMin) {
      const double sign = reduce == kMax ? -1 : 1;
      set(part, e, value.element<double>(e) + (owner ? 0 : sign * static_cast<double>(distance)));
    } else if (is_floating(value.dtype())) {
      const double scale = reduce == kAvg ? static_cast<double>(parts) : 1;
      set(part, e, value.element<double>(e) * weight * scale);
    } else {
      // 3 x + e on the first part; the others take away what is too much, the last one the rest.
      const int64_t x = value.element<int64_t>(e);
      const int64_t too_much = 2 * x + e % 5, share = parts > 1 ? too_much / (parts - 1) : 0;
      const int64_t rest = too_much - share * (parts - 2);
      set(part, e, parts == 1 ? x : index == 0 ? x + too_much : index + 1 < parts ? -share : -rest);
    }
  }
  return part;
}

Tensor distribute(const HostTensor& value, const Layout& layout) {
  const DeviceMesh& mesh = layout.mesh();
  if (!layout.has_partial()) {
    std::vector<std::string> order;
    for (int8_t axis : layout.shard_order()) order.push_back(mesh.axis_label(axis));
    return from_host(value, {.mesh = mesh, .placements = layout.placements(), .order = order});
  }
  return from_local(
      layout,
      [&](int64_t device, const Shape&) {
        HostTensor part = part_of(value, layout.box_of(value.shape(), device));
        const Shape coordinate = mesh.coordinate_of_index(mesh.index_of(device));
        for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
          const Placement& placement = layout.placement(axis);
          if (placement.is_partial()) part = partial_part(part, coordinate[axis], mesh.shape()[axis], placement.reduce);
        }
        return part;
      },
      value.shape());
}

Tensor distribute(const HostTensor& value, const DeviceMesh& mesh, const Placements& placements) {
  return distribute(value, Layout(mesh, placements, value.shape().ndim()));
}

double default_tolerance(DType dtype) {
  if (dtype == kFloat64) return 1e-12;
  if (dtype == kFloat32) return 1e-5;
  if (dtype == kFloat16) return 2e-3;
  return dtype == kBFloat16 ? 2e-2 : 0;
}

double largest(const HostTensor& tensor) {
  double scale = 0;
  for (int64_t e = 0; e < tensor.num_elements(); ++e) {
    const double value = std::abs(tensor.element<double>(e));
    if (std::isfinite(value)) scale = std::max(scale, value);
  }
  return scale;
}

std::string difference(const HostTensor& got, const HostTensor& want, double tolerance, double least_scale) {
  if (got.shape() != want.shape()) return "shape " + got.shape().str() + ", should be " + want.shape().str();
  if (got.dtype() != want.dtype())
    return std::string("dtype ") + name_of(got.dtype()) + ", should be " + name_of(want.dtype());
  const size_t size = static_cast<size_t>(size_of(want.dtype()));
  const double scale = tolerance > 0 ? std::max(least_scale, largest(want)) : 0;
  for (int64_t e = 0; e < want.num_elements(); ++e) {
    const size_t at = static_cast<size_t>(e) * size;
    if (std::memcmp(got.bytes() + at, want.bytes() + at, size) == 0) continue;
    const double a = got.element<double>(e), b = want.element<double>(e);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (tolerance > 0 && std::abs(a - b) <= tolerance * scale) continue;
    char text[160];
    std::snprintf(text, sizeof text, "element %lld is %.17g, should be %.17g (tolerance %g x %g)",
                  static_cast<long long>(e), a, b, tolerance, scale);
    return text;
  }
  return "";
}

TensorCheck::TensorCheck(const Tensor& tensor, HostTensor want, double tolerance, double least_scale)
    : shape_(tensor.shape()),
      dtype_(tensor.dtype()),
      layout_(tensor.layout()),
      want_(std::move(want)),
      tolerance_(tolerance),
      least_scale_(least_scale) {
  for (int64_t device : layout_.mesh().devices()) parts_.push_back(read_local_async(tensor, device));
  whole_ = tensor.reduced().to_host_async();
}

std::string TensorCheck::finish() const {
  if (shape_ != want_.shape()) return "global shape " + shape_.str() + ", should be " + want_.shape().str();
  if (dtype_ != want_.dtype()) return std::string("dtype ") + name_of(dtype_) + ", should be " + name_of(want_.dtype());
  std::string wrong = compare_parts();
  if (!wrong.empty()) return wrong;
  wrong = difference(whole_.get(), want_, tolerance_, least_scale_);
  return wrong.empty() ? "" : "read as a whole: " + wrong + ", layout " + layout_.str();
}

std::string TensorCheck::compare_parts() const {
  const DeviceMesh& mesh = layout_.mesh();
  std::vector<HostTensor> locals;
  std::optional<ReduceOp> reduce;
  bool mixed = false;
  for (const Placement& placement : layout_.placements()) {
    if (!placement.is_partial()) continue;
    mixed = mixed || (reduce && *reduce != placement.reduce);
    reduce = placement.reduce;
  }
  for (int64_t device : mesh.devices()) {
    locals.push_back(parts_[locals.size()].get());
    if (locals.back().shape() != layout_.local_shape(want_.shape(), device)) {
      return "device " + std::to_string(device) + " holds " + locals.back().shape().str() + ", its part is " +
             layout_.local_shape(want_.shape(), device).str();
    }
  }
  // A part may hold nothing but what rounds to 0 of the whole.
  const double least_scale = tolerance_ > 0 ? std::max(least_scale_, largest(want_)) : 0;
  // How parts of different reductions combine isn't a matter of single parts.
  for (int64_t i = 0; !mixed && i < mesh.num_devices(); ++i) {
    const HostTensor value = folded(layout_, locals, mesh.coordinate_of_index(i), 0);
    const std::string wrong =
        difference(value, part_of(want_, layout_.box_at(want_.shape(), i)), tolerance_, least_scale);
    if (!wrong.empty()) {
      return (reduce ? "parts that device " : "device ") + std::to_string(mesh.devices()[static_cast<size_t>(i)]) +
             (reduce ? " belongs to: " : ": ") + wrong + ", layout " + layout_.str();
    }
  }
  return "";
}

std::string check_tensor(const Tensor& tensor, const HostTensor& want, double tolerance, double least_scale) {
  return TensorCheck(tensor, want, tolerance, least_scale).finish();
}

std::vector<Shape> local_shapes(const Tensor& tensor) {
  std::vector<Shape> shapes;
  for (int64_t device : tensor.mesh().devices()) shapes.push_back(tensor.to_host_local(device).shape());
  return shapes;
}

}  // namespace dtorch::checker
