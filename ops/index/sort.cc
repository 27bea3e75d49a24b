// sort(x, dim) -> {values, indices}: always stable, so that equal elements keep their order on every layout; NaN is the
// largest. argsort and msort are compositions of it. Other dims keep their shards; a sharded dim is gathered first,
// since an element may go anywhere. Indices are positions in the global tensor. Gradient: g put back to its positions.
#include "ops/index/operators.h"
#include "ops/math/parts.h"
#include "ops/move/combine.h"
#include "ops/shape/operators.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/sort.h>
#include <ATen/ops/sort_cpu_dispatch.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {

extern OperatorDef sort_op, argsort_op, msort_op;

namespace {

struct SortAttrs {
  int64_t dim = 0;
  bool descending = false;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("descending", descending);
  }
};

std::vector<OutputMeta> sort_infer(const InferContext& context) {
  return {{context.shape(0), context.dtype(0)}, {context.shape(0), kInt64}};
}
Rule sort_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim(), blocked[] = {context.attributes<SortAttrs>().dim};
  Rule rule = pointwise_except_rule(ndim, ndim == 0 ? std::span<const int64_t>() : blocked, Linear::kNo);
  rule.output_letters.push_back(rule.output_letters[0]);
  for (Row& row : rule.rows) row.outputs.push_back(row.outputs[0]);
  return rule;
}

std::vector<Tensor> sort_gradient(const GradientContext& context) {
  if (!context.grad_output(0).defined()) return {Tensor()};
  const int64_t dim = context.attributes<SortAttrs>().dim;
  const Shape& shape = context.input_meta(0).global_shape;
  return {math::scatter_along(context.grad_output(0), context.output(1), dim, shape.ndim() == 0 ? 1 : shape[dim])};
}

#if DTORCH_WITH_KERNELS
void sort_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<SortAttrs>();
  auto [values, indices] = DTORCH_ATEN(sort)(input(context, 0), /*stable=*/true, attributes.dim, attributes.descending);
  set_output(context, 0, values);
  set_output(context, 1, indices);
}
#endif

std::vector<Sample> sort_samples() {
  const auto call = [](int64_t dim, bool descending) {
    return [=](const std::vector<Tensor>& in) {
      auto [values, indices] = sort(in[0], dim, descending);
      return std::vector<Tensor>{values, indices};
    };
  };
  return {{.name = "last dim", .inputs = {{{3, 5}}}, .call = call(-1, false)},
          {.name = "descending", .inputs = {{{7, 2}, kFloat64}}, .call = call(0, true)},
          {.name = "equal elements, size 1",
           .inputs = {{{7, 1}, kInt64, SampleFill::kIndices, 3, false}},
           .call = call(0, true)},
          {.name = "empty", .inputs = {{{0, 3}}}, .call = call(0, false)}};
}
std::vector<Sample> argsort_samples() {
  return {{.name = "uneven",
           .inputs = {{{5, 3}, kFloat64, SampleFill::kNormal, 0, false}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{argsort(in[0], 0, true), argsort(in[0])};
               }},
          {.name = "equal elements, size 1",
           .inputs = {{{7, 1}, kInt32, SampleFill::kIndices, 3, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{argsort(in[0], 0)}; }}};
}
std::vector<Sample> msort_samples() {
  return {{.name = "uneven",
           .inputs = {{{5, 3}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{msort(in[0])}; }},
          {.name = "size 1", .inputs = {{{1, 4}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{msort(in[0])};
           }}};
}

// A dim may be pending as a sum, whose order isn't known, so it is reduced; and gathered.
std::pair<Tensor, Tensor> sort_of(const char* op, const Tensor& x, int64_t dim, bool descending, const Where& where) {
  const SortAttrs attributes{math::dim_of_call(dim, x, op, where), descending};
  const Tensor whole = shaping::gather_dim(op, reduce_pending(op, x, {}, where), attributes.dim, where);
  auto [values, indices] = record_many<2>(sort_op, attributes, {&whole}, where);
  return {values, indices};
}

}  // namespace

constinit OperatorDef sort_op = {
    .name = "sort",
    .signature = "sort(x, dim, descending) -> (Tensor, Tensor)",
    .attributes = attribute_codec<SortAttrs>(),
    .infer = sort_infer,
    .rule = sort_rule,
    .kernel = DTORCH_KERNEL(sort_kernel),
    .gradient = sort_gradient,
    .samples = sort_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
    .saved_outputs = 2,
};
// Compositions.
constinit OperatorDef argsort_op = {
    .name = "argsort",
    .signature = "argsort(x, dim, descending) -> Tensor",
    .samples = argsort_samples,
    .placement_class = PlacementClass::kCombines,
};
constinit OperatorDef msort_op = {
    .name = "msort",
    .signature = "msort(x) -> Tensor",
    .samples = msort_samples,
    .placement_class = PlacementClass::kCombines,
};

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending, bool /*stable*/, Where where) {
  return sort_of("sort", x, dim, descending, where);
}
Tensor argsort(const Tensor& x, int64_t dim, bool descending, bool /*stable*/, Where where) {
  NoGrad no_grad;
  return sort_of("argsort", x, dim, descending, where).second;
}
Tensor msort(const Tensor& x, Where where) { return sort_of("msort", x, 0, false, where).first; }

}  // namespace dtorch
