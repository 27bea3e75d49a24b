// norm(x, p, dims) = vector_norm: (sum |x|^p)^(1/p); p = inf, -inf: the largest and smallest |x|; p = 0: how many
// aren't 0. Over sharded dims every device takes the norm of its part; the norm of these norms, one a part, is the
// result (p = 0: their sum). dist(a, b, p) is the norm of a - b. Gradients as PyTorch's: 0 where the norm is 0; p =
// inf, -inf: shared evenly by equal elements.
#include <limits>

#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linalg_vector_norm_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef vector_norm_op, dist_op;

namespace {

using namespace math;

std::vector<OutputMeta> norm_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ReduceAttrs>();
  const bool without_identity = attributes.order < 0 || std::isinf(attributes.order);
  if (without_identity && count_over(context.shape(0), attributes.dims) == 0) {
    throw ShapeError("[vector_norm] " + context.shape(0).str() +
                     " has no elements in the reduced dims, and the order " + std::to_string(attributes.order) +
                     " has no value for none");
  }
  return reduce_infer(context);
}

Tensor norm_gradient(const Tensor& g, const Tensor& x, const Tensor& y, const ReduceAttrs& attributes) {
  const double p = attributes.order;
  const Tensor norm = with_reduced_dims(y, attributes.dims, attributes.keepdim);
  const Tensor outer = with_reduced_dims(g, attributes.dims, attributes.keepdim);
  if (p == 0) return zeros_like(x);
  if (p == 1) return mul(outer, sign(x));
  if (p == 2) return mul(outer, where(eq(norm, 0), 0, div(x, norm)));
  if (std::isinf(p)) {
    const Tensor equal = logical_or(eq(abs(x), norm), ne(x, x));
    const Tensor count = sum(equal, attributes.dims, /*keepdim=*/true);
    return mul(div(outer, count), where(equal, sign(x), 0));
  }
  if (p < 1) {
    const Tensor scaled = mul(sign(x), where(eq(x, 0), 0, pow(abs(x), p - 1)));
    return mul(outer, mul(scaled, pow(norm, 1 - p)));
  }
  const Tensor scaled = p < 2 ? mul(sign(x), pow(abs(x), p - 1)) : mul(x, pow(abs(x), p - 2));
  return mul(outer, where(eq(norm, 0), 0, div(scaled, pow(norm, p - 1))));
}

#if DTORCH_WITH_KERNELS
void norm_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ReduceAttrs>();
  const at::Tensor& x = input(context, 0);
  const at::ScalarType type = scalar_type(attributes.dtype);
  if (context.input_box(0).empty()) {
    const double none = attributes.order < 0 ? std::numeric_limits<double>::infinity() : 0;
    set_output(context, 0, at::full(output_sizes(context, 0), none, x.options().dtype(type)));
    return;
  }
  at::OptionalIntArrayRef dims = attributes.dims;
  if (attributes.dims.size() == static_cast<size_t>(x.dim())) dims = std::nullopt;
  const bool keepdim = attributes.keepdim || attributes.by_part;
  set_output(context, 0, DTORCH_ATEN(linalg_vector_norm)(x, attributes.order, dims, keepdim, type));
}
#endif

std::vector<Sample> norm_samples() {
  const auto of_order = [](double p) {
    return [p](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{norm(in[0], p), vector_norm(in[0], p, {0}, true)};
    };
  };
  std::vector<Sample> samples = {{.name = "order 2", .inputs = {normal({5, 3})}, .call = of_order(2)},
                                 {.name = "at 0",
                                  .inputs = {{{3, 1}, kFloat64, SampleFill::kIndices, 1}},
                                  .call =
                                      [](const std::vector<Tensor>& in) {
                                        return std::vector<Tensor>{norm(in[0], 2), norm(in[0], 3)};
                                      }},
                                 {.name = "empty", .inputs = {normal({0, 2})}, .call = of_order(2)}};
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (double p : {0.0, 0.5, 1.0, 1.5, 3.0, kInf, -kInf, -2.0}) {
    samples.push_back(
        {.name = "order " + std::to_string(p), .inputs = {positive({5, 2}, kFloat64)}, .call = of_order(p)});
  }
  return samples;
}

std::vector<Sample> dist_samples() {
  return {{.name = "uneven, broadcast",
           .inputs = {normal({5, 3}, kFloat64), normal({3}, kFloat64)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{dist(in[0], in[1])}; }},
          {.name = "order 1, size 1",
           .inputs = {normal({1, 4}), normal({1, 4})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{dist(in[0], in[1], 1)}; }}};
}

}  // namespace

constinit OperatorDef vector_norm_op = {
    .name = "vector_norm",
    .signature = "vector_norm(x, order, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<ReduceAttrs>(),
    .infer = norm_infer,
    .rule = reduce_by_part_rule,
    .kernel = DTORCH_KERNEL(norm_kernel),
    .gradient = gradient_of_reduction<norm_gradient>,
    .samples = norm_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 1,
    .saved_outputs = 1,
};
// A composition.
constinit OperatorDef dist_op = {
    .name = "dist",
    .signature = "dist(a, b, p) -> Tensor",
    .samples = dist_samples,
    .placement_class = PlacementClass::kCombines,
};

Tensor vector_norm(const Tensor& x, double order, const std::vector<int64_t>& dims, bool keepdim,
                   std::optional<DType> dtype, Where where) {
  const DType result = dtype.value_or(x.dtype());
  if (!is_floating(x.dtype()) || !is_floating(result)) {
    throw at_line(DTypeError(std::string("[vector_norm] got ") + name_of(is_floating(x.dtype()) ? result : x.dtype()) +
                             ", needs a floating dtype; convert with to(kFloat32)"),
                  where);
  }
  const ReduceAttrs attributes{
      .dims = dims_of_call(dims, x, "vector_norm", where), .keepdim = keepdim, .dtype = result, .order = order};
  return reduce_by_part(vector_norm_op, norm_gradient, to(x, result, where), attributes,
                        {accumulation_dtype(result), order == 0 ? 1 : order}, where);
}
Tensor norm(const Tensor& x, double p, const std::vector<int64_t>& dims, bool keepdim, std::optional<DType> dtype,
            Where where) {
  return vector_norm(x, p, dims, keepdim, dtype, where);
}
Tensor dist(const Tensor& a, const Tensor& b, double p, Where where) {
  SourceScope scope(where);
  return vector_norm(sub(a, b, where), p, {}, false, {}, where);
}

}  // namespace dtorch
