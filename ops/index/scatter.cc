// scatter(x, dim, index, src): x with out[index[i][j]][j] = src[i][j] for dim 0; scatter_add adds; scatter_reduce takes
// the product, mean, maximum or minimum. src is cut to index's size first. Layouts: x keeps its own; dims of one size
// are sharded in all alike, else every device needs index and src whole and applies what falls into its part. Sums of a
// sharded index into a Replicate x are Partial, which the user's function reduces. scatter is linear in x and src
// together, as are scatter_add and the mean. Gradients: scatter x: g with 0 at the index, scatter_add x: g; src:
// gather(g). An index along `dim` that stands twice: the last stays.
#include <algorithm>
#include <string_view>

#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/math/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>
#endif

namespace dtorch {
namespace {

using namespace indexing;

struct ScatterAttrs {
  int64_t dim = 0;
  std::string reduce;  // of scatter_reduce
  bool include_self = true;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("reduce", reduce);
    v("include_self", include_self);
  }
};

// index and src have one shape here.
std::vector<OutputMeta> infer(const InferContext& context) {
  const int64_t dim = context.attributes<ScatterAttrs>().dim;
  const Shape &x = context.shape(0), &index = context.shape(1);
  bool fits = x.ndim() == index.ndim();
  for (int64_t d = 0; fits && d < x.ndim(); ++d) fits = d == dim || index[d] <= x[d];
  if (!fits) {
    throw ShapeError(std::string("[") + context.op + "] index is " + index.str() + " for x " + x.str() +
                     "; it needs as many dims and, in all but dim " + std::to_string(dim) + ", at most x's sizes");
  }
  return {{x, context.dtype(0)}};
}

// A mean of integers is rounded.
Put put_of(const ScatterAttrs& attributes, DType dtype) {
  const bool linear = attributes.reduce == "sum" || (attributes.reduce == "mean" && is_floating(dtype));
  return linear ? Put::kLinear : Put::kNothing;
}
Rule rule_with(const InferContext& context, Put put) {
  return put_rule(aligned_dims(context.shape(0), context.shape(1), context.attributes<ScatterAttrs>().dim), put,
                  context.inputs);
}
Rule scatter_rule(const InferContext& context, std::span<const OutputMeta>) { return rule_with(context, Put::kAssign); }
Rule scatter_add_rule(const InferContext& context, std::span<const OutputMeta>) {
  return rule_with(context, Put::kAdd);
}
Rule scatter_reduce_rule(const InferContext& context, std::span<const OutputMeta>) {
  return rule_with(context, put_of(context.attributes<ScatterAttrs>(), context.dtype(0)));
}

Tensor gradient_of_src(const GradientContext& context, const Tensor& g) {
  return math::place_gradient(gather(g, context.attributes<ScatterAttrs>().dim, context.input(1)),
                              context.input_meta(2));
}
// g without what the written places got.
Tensor gradient_of_x(const GradientContext& context, const Tensor& g) {
  const Tensor index = context.input(1);
  const Tensor zero = zeros_with(g, index.shape(), index.layout().without_partial(), Where::current());
  return math::place_gradient(scatter(g, context.attributes<ScatterAttrs>().dim, index, zero), context.input_meta(0));
}
std::vector<Tensor> scatter_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {context.needs_grad(0) ? gradient_of_x(context, g) : Tensor(), Tensor(),
          context.needs_grad(2) ? gradient_of_src(context, g) : Tensor()};
}
std::vector<Tensor> scatter_add_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {context.needs_grad(0) ? math::place_gradient(g, context.input_meta(0)) : Tensor(), Tensor(),
          context.needs_grad(2) ? gradient_of_src(context, g) : Tensor()};
}

// As PyTorch: a mean's g is divided by how many went into it; equal extremes share it.
std::vector<Tensor> scatter_reduce_gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<ScatterAttrs>();
  const int64_t dim = attributes.dim;
  Tensor g = context.grad_output(0);
  const Tensor index = context.input(1);
  const Tensor ones = full_with_layout(index.shape(), 1, g.dtype(), index.layout().without_partial());
  const auto count_from = [&](Number first, const Tensor& what) {
    const Tensor start = full_with_layout(g.shape(), first, g.dtype(), g.layout().without_partial());
    return scatter_add(start, dim, index, what);
  };
  Tensor of_x, of_src;
  if (attributes.reduce == "mean" || attributes.reduce == "sum") {
    if (attributes.reduce == "mean") g = div(g, clamp(count_from(attributes.include_self ? 1 : 0, ones), 1.0, {}));
    of_x = attributes.include_self ? g : gradient_of_x(context, g);
    of_src = gather(g, dim, index);
  } else {
    const Tensor result = context.output(0);
    const Tensor x_is_best = to(eq(context.input(0), result), g.dtype());
    const Tensor src_is_best = to(eq(context.input(2), gather(result, dim, index)), g.dtype());
    Tensor num_best = count_from(0, src_is_best);
    if (attributes.include_self) num_best = add(num_best, x_is_best);
    // A place that nothing was written to has x alone.
    const Tensor shared = div(g.reduced(), clamp(num_best, 1.0, {}));
    of_x = attributes.include_self ? mul(shared, x_is_best) : gradient_of_x(context, g);
    of_src = mul(gather(shared, dim, index), src_is_best);
  }
  return {math::place_gradient(of_x, context.input_meta(0)), Tensor(),
          math::place_gradient(of_src, context.input_meta(2))};
}

#if DTORCH_WITH_KERNELS
// write(target, index, src) applies the writes along `dim` to target.
template <class Write>
void write_kernel(KernelContext& context, Write&& write) {
  const int64_t dim = context.attributes<ScatterAttrs>().dim;
  const Shape& shape = context.input_meta(0).global_shape;
  at::Tensor out = writable_input(context), target = out, src = input(context, 2);
  at::Tensor index = checked_positions(input(context, 1), shape.ndim() == 0 ? 1 : shape[dim], /*wraps=*/false);
  const Box &held = context.input_box(0), &asked = context.input_box(1);
  bool none = index.numel() == 0 || out.numel() == 0;
  for (int64_t d = 0; d < shape.ndim() && !none; ++d) {
    if (d == dim) continue;
    const int64_t begin = std::max(held.offset[d], asked.offset[d]);
    const int64_t end = std::min(held.offset[d] + held.size[d], asked.offset[d] + asked.size[d]);
    none = begin >= end;
    if (none) break;
    target = target.narrow(d, begin - held.offset[d], end - begin);
    index = index.narrow(d, begin - asked.offset[d], end - begin);
    src = src.narrow(d, begin - asked.offset[d], end - begin);
  }
  if (!none && (shape.ndim() == 0 || held.size[dim] == shape[dim])) {
    write(target, index, src);
  } else if (!none) {
    // One place more along `dim` takes what other devices hold.
    const int64_t count = held.size[dim];
    const at::Tensor local = index.sub(held.offset[dim]);
    const at::Tensor absent = local.lt(0).logical_or_(local.ge(count));
    std::vector<int64_t> sizes = target.sizes().vec();
    ++sizes[static_cast<size_t>(dim)];
    at::Tensor wider = at::empty(sizes, target.options());
    wider.narrow(dim, 0, count).copy_(target);
    wider.select(dim, count).zero_();
    write(wider, local.masked_fill(absent, count), src);
    target.copy_(wider.narrow(dim, 0, count));
  }
  set_output(context, 0, std::move(out));
}
void scatter_kernel(KernelContext& context) {
  const int64_t dim = context.attributes<ScatterAttrs>().dim;
  write_kernel(context, [dim](at::Tensor& target, const at::Tensor& index, const at::Tensor& src) {
    target.scatter_(dim, index, src);
  });
}
void scatter_add_kernel(KernelContext& context) {
  const int64_t dim = context.attributes<ScatterAttrs>().dim;
  write_kernel(context, [dim](at::Tensor& target, const at::Tensor& index, const at::Tensor& src) {
    target.scatter_add_(dim, index, src);
  });
}
void scatter_reduce_kernel(KernelContext& context) {
  const auto& a = context.attributes<ScatterAttrs>();
  write_kernel(context, [&a](at::Tensor& target, const at::Tensor& index, const at::Tensor& src) {
    target.scatter_reduce_(a.dim, index, src, a.reduce, a.include_self);
  });
}
#endif

// src cut to index's size, which must not be larger.
Tensor cut_to_index(const char* op, const Tensor& src, const Tensor& index, const Where& where) {
  bool fits = src.ndim() == index.ndim();
  for (int64_t d = 0; fits && d < src.ndim(); ++d) fits = index.shape()[d] <= src.shape()[d];
  if (!fits) {
    throw at_line(ShapeError(std::string("[") + op + "] index is " + index.shape().str() + " for src " +
                             src.shape().str() + "; it needs as many dims and at most src's sizes"),
                  where);
  }
  Tensor cut = src;
  for (int64_t d = 0; d < src.ndim(); ++d) {
    if (cut.shape()[d] != index.shape()[d]) cut = narrow(cut, d, 0, index.shape()[d], where);
  }
  return cut;
}

Tensor scattered(const OperatorDef& op, const Tensor& x, const ScatterAttrs& given, const Tensor& index,
                 const Tensor& src, Put put, bool keep_pending, const Where& where) {
  SourceScope scope(where);
  need_index(op.name, index, where);
  need_same_dtype(op.name, x, src, where);
  ScatterAttrs attributes = given;
  attributes.dim = normalize_dim(given.dim, std::max<int64_t>(1, x.ndim()), op.name, where);
  const Tensor cut = cut_to_index(op.name, src, index, where);
  if (x.ndim() != index.ndim()) return record(op, attributes, {&x, &index, &cut}, where);  // says what is wrong
  const Placed placed =
      place_put(op.name, x, {index}, cut, aligned_dims(x.shape(), index.shape(), attributes.dim), put, where);
  const Tensor out = record(op, attributes, {&placed.inputs[0], &placed.inputs[1], &placed.inputs[2]}, where);
  return keep_pending ? out : finish(out, placed.result, where);
}

using Scatter = Tensor (*)(const Tensor&, int64_t, const Tensor&, const Tensor&, Where);
template <Scatter kScatter>
std::vector<Sample> scatter_samples() {
  const auto call = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{kScatter(in[0], dim, in[1], in[2], Where::current())};
    };
  };
  return {{.name = "uneven", .inputs = {{{5, 3}}, indices_below(5, {4, 3}), {{4, 3}}}, .call = call(0)},
          {.name = "a smaller index, a larger src",
           .inputs = {{{5, 3}, kFloat64}, indices_below(3, {4, 2}), {{5, 2}, kFloat64}},
           .call = call(-1)},
          {.name = "size 1, integers",
           .inputs = {{{1, 5}, kInt32, SampleFill::kIota, 0, false},
                      indices_below(5, {1, 2}, kInt32),
                      {{1, 2}, kInt32, SampleFill::kIota, 0, false}},
           .call = call(1)}};
}
std::vector<Sample> scatter_and_number_samples() {
  std::vector<Sample> samples = scatter_samples<scatter>();
  samples.push_back(
      {.name = "a number", .inputs = {{{5, 3}}, indices_below(5, {2, 3})}, .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{scatter(in[0], 0, in[1], 2.5)};
       }});
  return samples;
}
std::vector<Sample> scatter_reduce_samples() {
  std::vector<Sample> samples;
  for (const char* reduce : {"sum", "prod", "mean", "amax", "amin"}) {
    for (bool include_self : {true, false}) {
      const bool differentiable = std::string(reduce) != "prod";
      const auto fill = SampleFill::kDistinct;
      samples.push_back({.name = std::string(reduce) + (include_self ? "" : " without self"),
                         .inputs = {{{5, 2}, kFloat64, fill, 0, differentiable},
                                    indices_below(5, {3, 2}),
                                    {{3, 2}, kFloat64, fill, 0, differentiable}},
                         .call = [reduce, include_self](const std::vector<Tensor>& in) {
                           return std::vector<Tensor>{scatter_reduce(in[0], 0, in[1], in[2], reduce, include_self)};
                         }});
    }
  }
  samples.push_back({.name = "size 1, integers",
                     .inputs = {{{1, 4}, kInt64, SampleFill::kIota, 0, false},
                                indices_below(4, {1, 3}),
                                {{1, 3}, kInt64, SampleFill::kIota, 0, false}},
                     .call = [](const std::vector<Tensor>& in) {
                       return std::vector<Tensor>{scatter_reduce(in[0], 1, in[1], in[2], "amax")};
                     }});
  return samples;
}

}  // namespace

constinit OperatorDef scatter_op = {.name = "scatter",
                                    .signature = "scatter(x, dim, index, src) -> Tensor",
                                    .attributes = attribute_codec<ScatterAttrs>(),
                                    .infer = infer,
                                    .rule = scatter_rule,
                                    .kernel = DTORCH_KERNEL(scatter_kernel),
                                    .gradient = scatter_gradient,
                                    .samples = scatter_and_number_samples,
                                    .placement_class = PlacementClass::kCombines,
                                    .linear_in = "x and src together",
                                    .saved_inputs = 2};
constinit OperatorDef scatter_add_op = {.name = "scatter_add",
                                        .signature = "scatter_add(x, dim, index, src) -> Tensor",
                                        .attributes = attribute_codec<ScatterAttrs>(),
                                        .infer = infer,
                                        .rule = scatter_add_rule,
                                        .kernel = DTORCH_KERNEL(scatter_add_kernel),
                                        .gradient = scatter_add_gradient,
                                        .samples = scatter_samples<scatter_add>,
                                        .placement_class = PlacementClass::kCombines,
                                        .linear_in = "x and src together",
                                        .saved_inputs = 2};
constinit OperatorDef scatter_reduce_op = {
    .name = "scatter_reduce",
    .signature = "scatter_reduce(x, dim, index, src, reduce, include_self) -> Tensor",
    .attributes = attribute_codec<ScatterAttrs>(),
    .infer = infer,
    .rule = scatter_reduce_rule,
    .kernel = DTORCH_KERNEL(scatter_reduce_kernel),
    .gradient = scatter_reduce_gradient,
    .samples = scatter_reduce_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x and src together (sum, mean)",
    .saved_outputs = 1};

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Where where) {
  return scattered(scatter_op, x, {dim, "", true}, index, src, Put::kAssign, false, where);
}
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value, Where where) {
  SourceScope scope(where);
  return scatter(x, dim, index, broadcast_to("scatter", number_like(x, value, where), index.shape(), where), where);
}
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, Where where) {
  return scattered(scatter_add_op, x, {dim, "", true}, index, src, Put::kAdd, false, where);
}
Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const std::string& reduce,
                      bool include_self, Where where) {
  constexpr std::string_view kReduces[] = {"sum", "prod", "mean", "amax", "amin"};
  if (std::ranges::find(kReduces, reduce) == std::end(kReduces)) {
    throw at_line(UserError("[scatter_reduce] reduce is \"" + reduce +
                            "\", allowed are \"sum\", \"prod\", \"mean\", \"amax\" and \"amin\""),
                  where);
  }
  if (reduce == "sum" && include_self) return scatter_add(x, dim, index, src, where);
  if (reduce == "prod" && grad_enabled() && (x.requires_grad() || src.requires_grad())) {
    throw at_line(UserError("[scatter_reduce] \"prod\" has no gradient; detach x and src"), where);
  }
  const ScatterAttrs attributes{dim, reduce, include_self};
  return scattered(scatter_reduce_op, x, attributes, index, src, put_of(attributes, x.dtype()), false, where);
}

namespace indexing {
Tensor scatter_add_pending(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const Where& where) {
  return scattered(scatter_add_op, x, {dim, "", true}, index, src, Put::kAdd, /*keep_pending=*/true, where);
}
}  // namespace indexing

}  // namespace dtorch
