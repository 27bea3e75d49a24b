// What the creating operators share: inference, the part that a device makes, recording.
#include "ops/create/operators.h"

#include <cstring>

namespace dtorch {

std::vector<OperatorDef*> create_operators() {
  return {&full_op,        &arange_op,    &eye_op,       &rand_op,    &randn_op,       &randint_op, &from_host_op,
          &linspace_op,    &logspace_op,  &normal_op,    &uniform_op, &exponential_op, &gumbel_op,  &randperm_op,
          &bernoulli_p_op, &bernoulli_op, &normal_of_op, &poisson_op, &multinomial_op};
}

namespace create {

void check_shape(const char* op, const Shape& shape) {
  for (int64_t size : shape) {
    if (size < 0) throw ShapeError("[" + std::string(op) + "] shape " + shape.str() + " has a negative size");
  }
  shape.num_elements();
}

std::vector<OutputMeta> infer_created(const InferContext& context) {
  const auto& attributes = context.attributes<CreateAttrs>();
  check_shape(context.op, attributes.shape);
  return {{attributes.shape, attributes.dtype}};
}

bool holds_value(const KernelContext& context) {
  const Layout& layout = context.output_meta(0).layout;
  if (!layout.has_partial()) return true;
  const DeviceMesh& mesh = layout.mesh();
  const Shape coordinate = mesh.coordinate_of_index(mesh.index_of(context.device()));
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    if (layout.placement(axis).is_partial(kSum) && coordinate[axis] != 0) return false;
  }
  return true;
}

NativeTensor make_part(const KernelContext& context, bool* done) {
  NativeTensor part = NativeTensor::empty(context.output_box(0).size, context.output_meta(0).dtype);
  *done = !holds_value(context);
  if (*done && part.num_bytes() > 0) std::memset(part.data(), 0, static_cast<size_t>(part.num_bytes()));
  return part;
}

Layout layout_like(const Tensor& other) { return other.layout().without_partial(); }

Tensor record_created(const OperatorDef& op, const CreateAttrs& attributes, const Layout& layout,
                      std::span<const Scalar> scalars, bool requires_grad, const Where& where) {
  Tensor tensor = record(op, attributes, {}, where, {.scalars = scalars, .output_layouts = {&layout, 1}});
  if (requires_grad) tensor.requires_grad_();
  return tensor;
}

}  // namespace create
}  // namespace dtorch
