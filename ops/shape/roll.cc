// roll(x, shifts, dims): elements move by `shifts` places along the dims and come in again at the other end; without
// dims in row-major order of the whole tensor. Layouts: other dims keep their shards, Partial passes; along a sharded
// dim x is gathered, and the result sharded as x was. Gradient: g rolled back.
#include <algorithm>

#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/roll_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct RollAttrs {
  std::vector<int64_t> shifts;
  std::vector<int64_t> dims;  // as many as shifts; none: one shift of the flattened tensor
  template <class V>
  void fields(V& v) {
    v("shifts", shifts);
    v("dims", dims);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

std::vector<int64_t> all_dims(int64_t ndim) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < ndim; ++d) dims.push_back(d);
  return dims;
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& dims = context.attributes<RollAttrs>().dims;
  const int64_t ndim = context.shape(0).ndim();
  return keeping_rule(ndim, dims.empty() ? all_dims(ndim) : dims);
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<RollAttrs>();
  std::vector<int64_t> back;
  for (int64_t shift : attributes.shifts) back.push_back(-shift);
  return {math::place_gradient(roll(context.grad_output(0), back, attributes.dims), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RollAttrs>();
  set_output(context, 0, at::native::roll(input(context, 0), attributes.shifts, attributes.dims));
}
#endif

std::vector<Sample> samples() {
  return {
      {.name = "uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) { return roll(in[0], {2}, {0}); })},
      {.name = "two dims, size 1, float64", .inputs = {{{5, 1, 3}, kFloat64}}, .call = single([](const auto& in) {
                                                                                 return roll(in[0], {-7, 1}, {0, -1});
                                                                               })},
      {.name = "flattened, integers",
       .inputs = {{{5, 2}, kInt64, SampleFill::kIota, 0, false}},
       .call = single([](const auto& in) { return roll(in[0], {3}); })},
      {.name = "empty", .inputs = {{{0, 3}}}, .call = single([](const auto& in) {
                                                return roll(in[0], {1, 1}, {0, 1});
                                              })}};
}

}  // namespace

constinit OperatorDef roll_op = {
    .name = "roll",
    .signature = "roll(x, shifts, dims) -> Tensor",
    .attributes = attribute_codec<RollAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor roll(const Tensor& x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& dims, Where where) {
  if (shifts.size() != dims.size() && !(dims.empty() && shifts.size() == 1)) {
    throw at_line(ShapeError("[roll] got " + std::to_string(shifts.size()) + " shifts and " +
                             std::to_string(dims.size()) + " dims; as many of both, or one shift and no dims"),
                  where);
  }
  RollAttrs attributes;
  std::vector<int64_t> moved = dims;
  if (dims.empty() && x.ndim() == 1) moved = {0};
  const auto stays = [](int64_t shift, int64_t size) { return size <= 1 || shift % size == 0; };
  if (moved.empty()) {
    if (stays(shifts[0], x.numel())) return x;
    attributes.shifts = shifts;
  }
  for (size_t i = 0; i < moved.size(); ++i) {
    const int64_t d = normalize_dim(moved[i], x.ndim(), "roll", where);
    if (stays(shifts[i], x.shape()[d])) continue;
    attributes.shifts.push_back(shifts[i]);
    attributes.dims.push_back(d);
  }
  if (attributes.shifts.empty()) return x;
  const Tensor gathered = gather_dims("roll", x, attributes.dims.empty() ? all_dims(x.ndim()) : attributes.dims, where);
  return shard_as(x, record(roll_op, attributes, {&gathered}, where), where);
}

}  // namespace dtorch
