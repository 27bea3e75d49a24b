// full(shape, value): every element is `value`. zeros, ones and empty are full. scalars: [value] (of the kind that the
// attribute says).
#include <algorithm>

#include "ops/create/full_attrs.h"

namespace dtorch {
namespace {

using namespace create;

std::vector<OutputMeta> full_infer(const InferContext& context) {
  const auto& attributes = context.attributes<FullAttrs>();
  check_shape(context.op, attributes.shape);
  return {{attributes.shape, attributes.dtype}};
}

void full_kernel(KernelContext& context) {
  bool done = false;
  NativeTensor part = make_part(context, &done);
  const Scalar& value = context.scalar(0);
  if (!done) {
    visit_dtype(part.dtype(), [&]<class T>() {
      const T item =
          context.attributes<FullAttrs>().floating ? static_cast<T>(value.as_double()) : static_cast<T>(value.as_int());
      std::fill_n(reinterpret_cast<T*>(part.data()), part.num_elements(), item);
    });
  }
  context.output(0) = std::move(part);
}

std::vector<Sample> full_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [](const std::vector<Tensor>&) {
                 return std::vector<Tensor>{full({5, 3}, 2.5)};
               }},
          {.name = "empty dim", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{full({0, 3}, 7, {.dtype = kInt64})};
           }}};
}

}  // namespace

constinit OperatorDef full_op = {
    .name = "full",
    .signature = "full(shape, value, options) -> Tensor",
    .attributes = attribute_codec<FullAttrs>(),
    .infer = full_infer,
    .kernel = full_kernel,
    .samples = full_samples,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};

Tensor full_with_layout(const Shape& shape, Number value, DType dtype, const Layout& layout, Where where) {
  FullAttrs attributes;
  attributes.shape = shape;
  attributes.dtype = dtype;
  attributes.floating = value.is_floating;
  const Scalar scalar = value.scalar();
  return record(full_op, attributes, {}, where, {.scalars = {&scalar, 1}, .output_layouts = {&layout, 1}});
}

Tensor full(const Shape& shape, Number value, const TensorOptions& options, Where where) {
  Tensor tensor = full_with_layout(shape, value, options.dtype, options.layout(shape.ndim(), where), where);
  if (options.requires_grad) tensor.requires_grad_();
  return tensor;
}
Tensor empty(const Shape& shape, const TensorOptions& options, Where where) { return full(shape, 0, options, where); }
Tensor zeros(const Shape& shape, const TensorOptions& options, Where where) { return full(shape, 0, options, where); }
Tensor ones(const Shape& shape, const TensorOptions& options, Where where) { return full(shape, 1, options, where); }

Tensor full_like(const Tensor& other, Number value, std::optional<DType> dtype, Where where) {
  const GraphScope scope(Graph(IntrusivePtr<GraphCore>(&other.value()->graph())));
  return full_with_layout(other.shape(), value, dtype.value_or(other.dtype()), layout_like(other), where);
}
Tensor empty_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  return full_like(other, 0, dtype, where);
}
Tensor zeros_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  return full_like(other, 0, dtype, where);
}
Tensor ones_like(const Tensor& other, std::optional<DType> dtype, Where where) {
  return full_like(other, 1, dtype, where);
}

}  // namespace dtorch
