// gather(x, dim, index): out[i][j] = x[index[i][j]][j] for dim 0. Layouts: dims of one size keep their shards in x and
// index; index may be sharded on any dim while x is Replicate; x pending and index Replicate stays pending. Where x is
// sharded along `dim`, or on a dim in which index is smaller, each device gives the elements that it holds and zeros
// elsewhere: Partial(sum), which the user's function reduces to where index was. Gradient: scatter_add of g.
// take_along_dim is gather with broadcasting.
#include <algorithm>

#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#endif

namespace dtorch {
namespace {

using namespace indexing;

struct GatherAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const int64_t dim = context.attributes<GatherAttrs>().dim;
  const Shape &x = context.shape(0), &index = context.shape(1);
  bool fits = x.ndim() == index.ndim();
  for (int64_t d = 0; fits && d < x.ndim(); ++d) fits = d == dim || index[d] <= x[d];
  if (!fits) {
    throw ShapeError("[gather] index is " + index.str() + " for x " + x.str() + "; it needs as many dims and, in all " +
                     "but dim " + std::to_string(dim) + ", at most x's sizes");
  }
  return {{index, context.dtype(0)}};
}

Dims dims_of(const Shape& x, const Shape& index, int64_t dim) { return aligned_dims(x, index, dim); }

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return pick_rule(dims_of(context.shape(0), context.shape(1), context.attributes<GatherAttrs>().dim));
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  const Tensor& g = context.grad_output(0);
  const Where where = Where::current();
  const Tensor zero = zeros_with(g, meta.global_shape, meta.layout.without_partial(), where);
  return {math::place_gradient(
              scatter_add_pending(zero, context.attributes<GatherAttrs>().dim, context.input(1), g, where), meta),
          Tensor()};
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  const int64_t dim = context.attributes<GatherAttrs>().dim;
  at::Tensor x = input(context, 0);
  const Shape& shape = context.input_meta(0).global_shape;
  at::Tensor index = checked_positions(input(context, 1), shape.ndim() == 0 ? 1 : shape[dim], /*wraps=*/false);
  const Box &held = context.input_box(0), &asked = context.input_box(1);
  // What this device holds of what is asked for, in all dims but `dim`.
  std::vector<int64_t> first(static_cast<size_t>(shape.ndim()), 0);
  bool all = true, none = index.numel() == 0 || x.numel() == 0;
  for (int64_t d = 0; d < shape.ndim() && !none; ++d) {
    if (d == dim) continue;
    const int64_t begin = std::max(held.offset[d], asked.offset[d]);
    const int64_t end = std::min(held.offset[d] + held.size[d], asked.offset[d] + asked.size[d]);
    none = begin >= end;
    if (none) break;
    x = x.narrow(d, begin - held.offset[d], end - begin);
    index = index.narrow(d, begin - asked.offset[d], end - begin);
    first[static_cast<size_t>(d)] = begin - asked.offset[d];
    all = all && end - begin == asked.size[d];
  }
  const at::Scalar nothing = identity_of_sum(context.output_meta(0).dtype);
  const auto filled = [&] { return at::full(output_sizes(context, 0), nothing, x.options()); };
  if (none) {
    set_output(context, 0, filled());
    return;
  }
  at::Tensor picked;
  if (shape.ndim() == 0 || held.size[dim] == shape[dim]) {
    picked = at::gather(x, dim, index);
  } else {
    const at::Tensor local = index.sub(held.offset[dim]);
    const at::Tensor absent = local.lt(0).logical_or_(local.ge(held.size[dim]));
    picked = at::gather(x, dim, local.clamp(0, held.size[dim] - 1)).masked_fill_(absent, nothing);
  }
  if (!all) {
    at::Tensor out = filled(), target = out;
    for (int64_t d = 0; d < shape.ndim(); ++d) target = target.narrow(d, first[static_cast<size_t>(d)], picked.size(d));
    target.copy_(picked);
    picked = out;
  }
  set_output(context, 0, std::move(picked));
}
#endif

std::vector<Sample> samples() {
  const auto call = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{gather(in[0], dim, in[1])}; };
  };
  return {{.name = "uneven", .inputs = {{{5, 3}}, indices_below(5, {4, 3})}, .call = call(0)},
          {.name = "a smaller index", .inputs = {{{5, 3}, kFloat64}, indices_below(3, {4, 7})}, .call = call(-1)},
          {.name = "size 1, integers",
           .inputs = {{{1, 5}, kInt32, SampleFill::kIota, 0, false}, indices_below(5, {1, 2}, kInt32)},
           .call = call(1)},
          {.name = "empty", .inputs = {{{5, 2}}, indices_below(5, {0, 2})}, .call = call(0)}};
}
std::vector<Sample> along_dim_samples() {
  return {{.name = "broadcast",
           .inputs = {{{5, 3}}, indices_below(5, {4, 1})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{take_along_dim(in[0], in[1], 0)}; }},
          {.name = "x broadcast, float64",
           .inputs = {{{1, 5}, kFloat64}, indices_below(5, {3, 2})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{take_along_dim(in[0], in[1], 1)}; }},
          {.name = "flattened",
           .inputs = {{{5, 3}}, indices_below(15, {7})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{take_along_dim(in[0], in[1])}; }}};
}

}  // namespace

constinit OperatorDef gather_op = {.name = "gather",
                                   .signature = "gather(x, dim, index) -> Tensor",
                                   .attributes = attribute_codec<GatherAttrs>(),
                                   .infer = infer,
                                   .rule = rule,
                                   .kernel = DTORCH_KERNEL(kernel),
                                   .gradient = gradient,
                                   .samples = samples,
                                   .placement_class = PlacementClass::kCombines,
                                   .linear_in = "x",
                                   .saved_inputs = 2};
// A composition.
constinit OperatorDef take_along_dim_op = {.name = "take_along_dim",
                                           .signature = "take_along_dim(x, index, dim) -> Tensor",
                                           .samples = along_dim_samples,
                                           .placement_class = PlacementClass::kCombines,
                                           .linear_in = "x"};

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, Where where) {
  SourceScope scope(where);
  need_index("gather", index, where);
  const int64_t d = normalize_dim(dim, std::max<int64_t>(1, x.ndim()), "gather", where);
  if (x.ndim() != index.ndim()) return record(gather_op, GatherAttrs{d}, {&x, &index}, where);  // says what is wrong
  const Placed placed = place_pick("gather", x, {index}, dims_of(x.shape(), index.shape(), d), where);
  return finish(record(gather_op, GatherAttrs{d}, {&placed.inputs[0], &placed.inputs[1]}, where), placed.result, where);
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int64_t> dim, Where where) {
  SourceScope scope(where);
  need_index("take_along_dim", index, where);
  if (!dim) {
    const Tensor whole = replicated("take_along_dim", index, /*pending=*/false, where);
    return take(x, reshape(whole, {-1}, where), where);
  }
  if (x.ndim() != index.ndim()) {
    throw at_line(ShapeError("[take_along_dim] x " + x.shape().str() + " and index " + index.shape().str() +
                             " must have one number of dims"),
                  where);
  }
  const int64_t d = normalize_dim(*dim, x.ndim(), "take_along_dim", where);
  Shape of_x = x.shape(), of_index = index.shape();
  of_x[d] = of_index[d] = 1;
  of_x = of_index = broadcast_shapes(of_x, of_index, "take_along_dim");
  of_x[d] = x.shape()[d];
  of_index[d] = index.shape()[d];
  return gather(broadcast_to("take_along_dim", x, of_x, where), d,
                broadcast_to("take_along_dim", index, of_index, where), where);
}

}  // namespace dtorch
