// logsumexp(x, dims) = log(sum(exp(x))), shifted by the maximum. Over sharded dims every device takes it of its part,
// and that of these values, one a part, is the result. Integers give float32. Gradient: g exp(x - logsumexp).
#include <limits>

#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp_native.h>
#endif

namespace dtorch {

extern OperatorDef logsumexp_op;

namespace {

using namespace math;

Tensor logsumexp_gradient(const Tensor& g, const Tensor& x, const Tensor& y, const ReduceAttrs& attributes) {
  const Tensor shares = exp(sub(x, with_reduced_dims(y, attributes.dims, attributes.keepdim)));
  return mul(with_reduced_dims(g, attributes.dims, attributes.keepdim), shares);
}

#if DTORCH_WITH_KERNELS
void logsumexp_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ReduceAttrs>();
  const at::Tensor x = input(context, 0).to(scalar_type(attributes.dtype));
  if (context.input_box(0).empty()) {
    const double none = -std::numeric_limits<double>::infinity();
    set_output(context, 0, at::full(output_sizes(context, 0), none, x.options()));
    return;
  }
  // A tensor without dims has none to reduce; ATen then wants its dim 0.
  const std::vector<int64_t> dims = x.dim() == 0 ? std::vector<int64_t>{0} : attributes.dims;
  set_output(context, 0, at::native::logsumexp(x, dims, attributes.keepdim || attributes.by_part));
}
#endif

std::vector<Sample> logsumexp_samples() {
  return {{.name = "last dim",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{logsumexp(in[0], {-1})}; }},
          {.name = "two dims, size 1",
           .inputs = {normal({7, 1, 2}, kFloat64)},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{logsumexp(in[0], {0, 1}, true)};
               }},
          {.name = "integers", .inputs = {integers({4, 3}, kInt32)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{logsumexp(in[0], {0})};
           }}};
}

}  // namespace

constinit OperatorDef logsumexp_op = {
    .name = "logsumexp",
    .signature = "logsumexp(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<ReduceAttrs>(),
    .infer = reduce_infer,
    .rule = reduce_by_part_rule,
    .kernel = DTORCH_KERNEL(logsumexp_kernel),
    .gradient = gradient_of_reduction<logsumexp_gradient>,
    .samples = logsumexp_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};

Tensor logsumexp(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, Where where) {
  const DType dtype = is_floating(x.dtype()) ? x.dtype() : kFloat32;
  const Tensor terms = to(reduce_pending("logsumexp", x, {}, where), dtype, where);
  const ReduceAttrs attributes{.dims = dims_of_call(dims, x, "logsumexp", where), .keepdim = keepdim, .dtype = dtype};
  return reduce_by_part(logsumexp_op, logsumexp_gradient, terms, attributes, {accumulation_dtype(dtype)}, where);
}

}  // namespace dtorch
