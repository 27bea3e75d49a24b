// prod(x) and prod(x, dim). The parts of a product can't be pending: over sharded dims every device multiplies its
// part, and the products, one a part, are gathered and multiplied. Integers and bool are multiplied in int64. Gradient:
// g times the product of the others, zeros included: where x is 0, the product of what isn't 0 if that zero is the only
// one.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/prod.h>
#include <ATen/ops/prod_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef prod_op;

namespace {

using namespace math;

Tensor prod_over(const Tensor& x, const ReduceAttrs& attributes, const Where& where);

Tensor prod_gradient(const Tensor& g, const Tensor& x, const Tensor& y, const ReduceAttrs& attributes) {
  const std::vector<int64_t>& dims = attributes.dims;
  const Tensor is_zero = eq(x, 0), num_zeros = sum(is_zero, dims, /*keepdim=*/true);
  const ReduceAttrs kept{.dims = dims, .keepdim = true, .dtype = attributes.dtype};
  const Tensor of_others = prod_over(where(is_zero, 1, x), kept, Where::current());
  const Tensor product = with_reduced_dims(y, dims, attributes.keepdim);
  const Tensor at_zero = where(eq(num_zeros, 1), of_others, 0);
  const Tensor elsewhere = where(eq(num_zeros, 0), div(product, x), 0);
  return mul(with_reduced_dims(g, dims, attributes.keepdim), where(is_zero, at_zero, elsewhere));
}

#if DTORCH_WITH_KERNELS
void prod_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ReduceAttrs>();
  const at::Tensor& x = input(context, 0);
  const at::ScalarType type = scalar_type(attributes.dtype);
  if (attributes.dims.size() == 1) {
    set_output(context, 0, DTORCH_ATEN(prod)(x, attributes.dims[0], attributes.keepdim || attributes.by_part, type));
  } else {
    set_output(context, 0, DTORCH_ATEN(prod)(x, type).reshape(output_sizes(context, 0)));
  }
}
#endif

std::vector<Sample> prod_samples() {
  return {{.name = "all dims",
           .inputs = {normal({5, 3}, kFloat64)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{prod(in[0])}; }},
          {.name = "one dim, zeros",
           .inputs = {{{7, 3}, kFloat64, SampleFill::kIndices, 4}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{prod(in[0], 0)}; }},
          {.name = "size 1 and integers",
           .inputs = {{{5, 1}, kInt32, SampleFill::kPositive, 0, false}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{prod(in[0], -2, true), prod(in[0], 1)};
               }},
          {.name = "empty", .inputs = {normal({0, 3})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{prod(in[0], 0)};
           }}};
}

Tensor prod_over(const Tensor& x, const ReduceAttrs& attributes, const Where& where) {
  return reduce_by_part(prod_op, prod_gradient, x, attributes, {accumulation_dtype(attributes.dtype)}, where);
}

Tensor prod_of(const Tensor& x, std::vector<int64_t> dims, bool keepdim, std::optional<DType> dtype,
               const Where& where) {
  const DType result = dtype.value_or(is_floating(x.dtype()) ? x.dtype() : kInt64);
  const Tensor factors = to(reduce_pending("prod", x, {}, where), result, where);
  return prod_over(factors, {.dims = std::move(dims), .keepdim = keepdim, .dtype = result}, where);
}

}  // namespace

constinit OperatorDef prod_op = {
    .name = "prod",
    .signature = "prod(x, dim, keepdim) -> Tensor",
    .attributes = attribute_codec<ReduceAttrs>(),
    .infer = reduce_infer,
    .rule = reduce_by_part_rule,
    .kernel = DTORCH_KERNEL(prod_kernel),
    .gradient = gradient_of_reduction<prod_gradient>,
    .samples = prod_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};

Tensor prod(const Tensor& x, std::optional<DType> dtype, Where where) {
  return prod_of(x, dims_of_call({}, x, "prod", where), false, dtype, where);
}
Tensor prod(const Tensor& x, int64_t dim, bool keepdim, std::optional<DType> dtype, Where where) {
  return prod_of(x, dims_of_call({dim}, x, "prod", where), keepdim, dtype, where);
}

}  // namespace dtorch
