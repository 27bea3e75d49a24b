// repeat(x, repeats), tile(x, repeats) and repeat_interleave(x, repeats, dim): copies of x one after the other, or of
// each element in place. Layouts: dims that aren't repeated keep their shards, Partial passes; along a sharded dim x is
// gathered, and the result sharded as x was. Gradient: g added up over the copies (repeat_gradient).
#include <algorithm>

#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/repeat_native.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {

extern OperatorDef repeat_op, repeat_interleave_op, repeat_gradient_op;

namespace {

using namespace shaping;

struct RepeatAttrs {
  std::vector<int64_t> repeats;  // one a dim of the result
  bool interleaved = false;      // copies of one element stand together
  Shape shape;                   // of x
  template <class V>
  void fields(V& v) {
    v("repeats", repeats);
    v("interleaved", interleaved);
    v("shape", shape);
  }
  int64_t added() const { return static_cast<int64_t>(repeats.size()) - shape.ndim(); }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& attributes = context.attributes<RepeatAttrs>();
  Shape shape;
  for (size_t d = 0; d < attributes.repeats.size(); ++d) {
    const int64_t own = static_cast<int64_t>(d) - attributes.added();
    shape.push_back(attributes.repeats[d] * (own >= 0 ? context.shape(0)[own] : 1));
  }
  shape.num_elements();  // throws when there are too many
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> gradient_infer(const InferContext& context) {
  return {{context.attributes<RepeatAttrs>().shape, context.dtype(0)}};
}

// to[d]: the result's dim that x's dim d is, when it isn't repeated; else -1.
std::vector<int64_t> dims_to(const RepeatAttrs& attributes) {
  std::vector<int64_t> to;
  for (int64_t d = 0; d < attributes.shape.ndim(); ++d) {
    const int64_t out = d + attributes.added();
    to.push_back(attributes.repeats[static_cast<size_t>(out)] == 1 ? out : -1);
  }
  return to;
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<RepeatAttrs>();
  std::vector<int64_t> from(attributes.repeats.size(), -1);
  const std::vector<int64_t> to = dims_to(attributes);
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d] >= 0) from[static_cast<size_t>(to[d])] = static_cast<int64_t>(d);
  }
  return dim_map_rule(attributes.shape.ndim(), from);
}
Rule gradient_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<RepeatAttrs>();
  return without_extremes(dim_map_rule(context.shape(0).ndim(), dims_to(attributes)));
}

std::vector<int64_t> repeated_dims_of_result(const RepeatAttrs& attributes) {
  std::vector<int64_t> dims;
  for (size_t d = 0; d < attributes.repeats.size(); ++d) {
    if (attributes.repeats[d] != 1) dims.push_back(static_cast<int64_t>(d));
  }
  return dims;
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const Where where = Where::current();
  const auto& attributes = context.attributes<RepeatAttrs>();
  std::vector<int64_t> blocked = repeated_dims_of_result(attributes);
  for (int64_t d = 0; d < attributes.added(); ++d) blocked.push_back(d);
  const Tensor g = gather_dims("repeat", context.grad_output(0), blocked, where);
  return {math::place_gradient(record(repeat_gradient_op, attributes, {&g}, where), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void repeat_kernel(KernelContext& context) {
  set_output(context, 0, at::native::repeat(input(context, 0), context.attributes<RepeatAttrs>().repeats));
}
void interleave_kernel(KernelContext& context) {
  const auto& repeats = context.attributes<RepeatAttrs>().repeats;
  at::Tensor x = input(context, 0);
  for (size_t i = 0; i < repeats.size(); ++i) {
    const auto d = static_cast<int64_t>(i);
    if (repeats[i] == 1) continue;
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.insert(sizes.begin() + d + 1, repeats[i]);
    x = x.unsqueeze(d + 1).expand(sizes).reshape(output_sizes(context, 0));
  }
  set_output(context, 0, x);
}
// g seen as [..., repeats, size, ...] (interleaved: [..., size, repeats, ...]) and added up over the repeats. LibTorch
// has no limit of 8 dims.
void gradient_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RepeatAttrs>();
  const at::Tensor& g = input(context, 0);
  if (g.numel() == 0) return set_output(context, 0, at::zeros(output_sizes(context, 0), g.options()));
  std::vector<int64_t> sizes, dims;
  for (size_t d = 0; d < attributes.repeats.size(); ++d) {
    const int64_t repeats = attributes.repeats[d], size = g.size(static_cast<int64_t>(d)) / repeats;
    if (attributes.interleaved) sizes.push_back(size);
    dims.push_back(static_cast<int64_t>(sizes.size()));
    sizes.push_back(repeats);
    if (!attributes.interleaved) sizes.push_back(size);
  }
  set_output(context, 0, DTORCH_ATEN(sum)(g.reshape(sizes), dims).reshape(output_sizes(context, 0)));
}
#endif

std::vector<Sample> repeat_samples() {
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) {
                                                     return repeat(in[0], {2, 1});
                                                   })},
          {.name = "new dims, size 1", .inputs = {{{5, 1}, kFloat64}}, .call = single([](const auto& in) {
                                                                         return repeat(in[0], {2, 1, 3});
                                                                       })},
          {.name = "none, integers",
           .inputs = {{{5, 2}, kInt64, SampleFill::kIota, 0, false}},
           .call = single([](const auto& in) {
             return repeat(in[0], {1, 0});
           })}};
}
std::vector<Sample> tile_samples() {
  return {{.name = "fewer repeats than dims", .inputs = {{{5, 3}}}, .call = single([](const auto& in) {
                                                                      return tile(in[0], {2});
                                                                    })},
          {.name = "size 1", .inputs = {{{1, 3}, kFloat64}}, .call = single([](const auto& in) {
                                                               return tile(in[0], {2, 1, 1});
                                                             })}};
}
std::vector<Sample> interleave_samples() {
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) {
                                                     return repeat_interleave(in[0], 2, 0);
                                                   })},
          {.name = "size 1", .inputs = {{{5, 1, 2}, kFloat64}}, .call = single([](const auto& in) {
                                                                  return repeat_interleave(in[0], 3, 1);
                                                                })},
          {.name = "flattened",
           .inputs = {{{5}, kInt64, SampleFill::kIota, 0, false}},
           .call = single([](const auto& in) { return repeat_interleave(in[0], 3); })}};
}

Tensor record_repeat(const OperatorDef& op, const Tensor& x, const RepeatAttrs& attributes, const Where& where) {
  if (attributes.added() == 0 && repeated_dims_of_result(attributes).empty()) return x;
  std::vector<int64_t> repeated, to;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    to.push_back(d + attributes.added());
    if (attributes.repeats[static_cast<size_t>(to.back())] != 1) repeated.push_back(d);
  }
  const Tensor gathered = gather_dims(op.name, x, repeated, where);
  return shard_as(x, record(op, attributes, {&gathered}, where), where, to);
}

void need_not_negative(const char* op, const std::vector<int64_t>& repeats, const Where& where) {
  for (int64_t number : repeats) {
    if (number < 0) {
      throw at_line(
          ShapeError("[" + std::string(op) + "] repeats are " + std::to_string(number) + ", must not be negative"),
          where);
    }
  }
}

}  // namespace

constinit OperatorDef repeat_op = {
    .name = "repeat",
    .signature = "repeat(x, repeats) -> Tensor",
    .attributes = attribute_codec<RepeatAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(repeat_kernel),
    .gradient = gradient,
    .samples = repeat_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef repeat_interleave_op = {
    .name = "repeat_interleave",
    .signature = "repeat_interleave(x, repeats, dim) -> Tensor",
    .attributes = attribute_codec<RepeatAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(interleave_kernel),
    .gradient = gradient,
    .samples = interleave_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef repeat_gradient_op = {
    .name = "repeat_gradient",
    .signature = "repeat_gradient(g, repeats, shape) -> Tensor",
    .attributes = attribute_codec<RepeatAttrs>(),
    .infer = gradient_infer,
    .rule = gradient_rule,
    .kernel = DTORCH_KERNEL(gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef tile_op =
    composition("tile", "tile(x, repeats) -> Tensor", tile_samples, "x", PlacementClass::kCombines);

Tensor repeat(const Tensor& x, const std::vector<int64_t>& repeats, Where where) {
  need_not_negative("repeat", repeats, where);
  if (std::ssize(repeats) < x.ndim() || repeats.size() > kMaxDims) {
    throw at_line(ShapeError("[repeat] got " + std::to_string(repeats.size()) + " repeats for " + x.shape().str() +
                             "; allowed are one a dim and more in front, at most " + std::to_string(kMaxDims)),
                  where);
  }
  return record_repeat(repeat_op, x, {repeats, false, x.shape()}, where);
}
Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats, Where where) {
  std::vector<int64_t> all(static_cast<size_t>(std::max<int64_t>(0, x.ndim() - std::ssize(repeats))), 1);
  all.insert(all.end(), repeats.begin(), repeats.end());
  return repeat(x, all, where);
}
Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim, Where where) {
  need_not_negative("repeat_interleave", {repeats}, where);
  if (!dim) return repeat_interleave(x.ndim() == 1 ? x : flatten(x, 0, -1, where), repeats, 0, where);
  const int64_t d = normalize_dim(*dim, x.ndim(), "repeat_interleave", where);
  RepeatAttrs attributes{std::vector<int64_t>(static_cast<size_t>(x.ndim()), 1), true, x.shape()};
  attributes.repeats[static_cast<size_t>(d)] = repeats;
  return record_repeat(repeat_interleave_op, x, attributes, where);
}

}  // namespace dtorch
