// flip(x, dims), fliplr, flipud and rot90: the order along the dims is reversed. Layouts: other dims keep their shards,
// Partial passes; along a sharded dim x is gathered, and the result sharded as x was. Gradient: flip(g).
#include <algorithm>

#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/flip.h>
#include <ATen/ops/flip_cpu_dispatch.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct FlipAttrs {
  std::vector<int64_t> dims;  // ascending
  template <class V>
  void fields(V& v) {
    v("dims", dims);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return keeping_rule(context.shape(0).ndim(), context.attributes<FlipAttrs>().dims);
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor g = flip(context.grad_output(0), context.attributes<FlipAttrs>().dims);
  return {math::place_gradient(g, context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  set_output(context, 0, DTORCH_ATEN(flip)(input(context, 0), context.attributes<FlipAttrs>().dims));
}
#endif

std::vector<Sample> samples() {
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) { return flip(in[0], {0}); })},
          {.name = "two of three dims, size 1", .inputs = {{{5, 1, 3}, kFloat64}}, .call = single([](const auto& in) {
                                                                                     return flip(in[0], {1, -1});
                                                                                   })},
          {.name = "empty, integers",
           .inputs = {{{0, 3}, kInt64, SampleFill::kIota, 0, false}},
           .call = single([](const auto& in) {
             return flip(in[0], {1, 0});
           })}};
}
std::vector<Sample> fliplr_samples() {
  return {
      {.name = "uneven", .inputs = {{{2, 5}}}, .call = single([](const auto& in) { return fliplr(in[0]); })},
      {.name = "size 1", .inputs = {{{3, 1}, kFloat64}}, .call = single([](const auto& in) { return fliplr(in[0]); })}};
}
std::vector<Sample> flipud_samples() {
  return {
      {.name = "uneven", .inputs = {{{5, 2}}}, .call = single([](const auto& in) { return flipud(in[0]); })},
      {.name = "size 1", .inputs = {{{1, 3}, kFloat64}}, .call = single([](const auto& in) { return flipud(in[0]); })}};
}
std::vector<Sample> rot90_samples() {
  return {{.name = "once, uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) { return rot90(in[0]); })},
          {.name = "minus one and two", .inputs = {{{2, 1, 5}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{rot90(in[0], -1, {0, 2}), rot90(in[0], 2, {1, 2})};
           }}};
}

}  // namespace

constinit OperatorDef flip_op = {
    .name = "flip",
    .signature = "flip(x, dims) -> Tensor",
    .attributes = attribute_codec<FlipAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef fliplr_op =
    composition("fliplr", "fliplr(x) -> Tensor", fliplr_samples, "x", PlacementClass::kCombines);
constinit OperatorDef flipud_op =
    composition("flipud", "flipud(x) -> Tensor", flipud_samples, "x", PlacementClass::kCombines);
constinit OperatorDef rot90_op =
    composition("rot90", "rot90(x, k, dims) -> Tensor", rot90_samples, "x", PlacementClass::kCombines);

Tensor flip(const Tensor& x, const std::vector<int64_t>& dims, Where where) {
  FlipAttrs attributes{distinct_dims("flip", dims, x.ndim(), where)};
  std::erase_if(attributes.dims, [&](int64_t d) { return x.shape()[d] <= 1; });
  if (attributes.dims.empty()) return x;
  const Tensor gathered = gather_dims("flip", x, attributes.dims, where);
  return shard_as(x, record(flip_op, attributes, {&gathered}, where), where);
}
Tensor fliplr(const Tensor& x, Where where) {
  if (x.ndim() < 2) throw at_line(ShapeError("[fliplr] needs at least 2 dims, got " + x.shape().str()), where);
  return flip(x, {1}, where);
}
Tensor flipud(const Tensor& x, Where where) {
  if (x.ndim() < 1) throw at_line(ShapeError("[flipud] needs at least 1 dim, got []"), where);
  return flip(x, {0}, where);
}
Tensor rot90(const Tensor& x, int64_t k, const std::vector<int64_t>& dims, Where where) {
  if (dims.size() != 2) {
    throw at_line(ShapeError("[rot90] got " + std::to_string(dims.size()) + " dims, a plane has 2"), where);
  }
  distinct_dims("rot90", dims, x.ndim(), where);
  switch ((k % 4 + 4) % 4) {
    case 1:
      return transpose(flip(x, {dims[1]}, where), dims[0], dims[1], where);
    case 2:
      return flip(x, dims, where);
    case 3:
      return transpose(flip(x, {dims[0]}, where), dims[0], dims[1], where);
    default:
      return x;
  }
}

}  // namespace dtorch
