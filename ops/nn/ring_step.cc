// ring_attention_step(q, k, v, [sum, lse]) -> (sum, lse): attention of this device's queries over one block of keys,
// added to what earlier blocks gave: softmax parts merge by their log-sum-exp. k and v are on a mesh whose devices are
// rotated along the ring's axis, so that their boxes say which global positions the block has; it may have none.
// ring_attention_grad_step(g, q, k, v, out, lse, dq, dk, dv) -> (dq, dk, dv): the same for gradients; dk and dv travel
// with their block. Sums are kept in float32 (float64 for float64). Composed by context_parallel.cc.
#include "ops/nn/ring_step.h"

#include "ops/nn/attention.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>
#endif

namespace dtorch {
namespace {

using namespace attention;
using namespace nn_ops;

std::vector<OutputMeta> step_infer(const InferContext& context) {
  const Shape& q = context.shape(0);
  const DType wide = sum_dtype(context.dtype(0));
  return {{q, wide}, {Shape{q[0], q[1], q[2]}, wide}};
}
std::vector<OutputMeta> grad_step_infer(const InferContext& context) {
  const DType wide = sum_dtype(context.dtype(1));
  return {{context.shape(1), wide}, {context.shape(2), wide}, {context.shape(3), wide}};
}

#if DTORCH_WITH_KERNELS
enum class Sees : uint8_t { kNothing, kDiagonal, kAll };

// Blocks of one split are the same or apart, so that a causal mask is none, the triangle, or everything.
Sees sees(const Box& q, const Box& k, bool is_causal) {
  if (q.empty() || k.empty()) return Sees::kNothing;
  if (!is_causal || k.offset[2] + k.size[2] <= q.offset[2]) return Sees::kAll;
  if (k.offset[2] == q.offset[2]) return Sees::kDiagonal;
  DTORCH_CHECK(k.offset[2] >= q.offset[2] + q.size[2], "a block of keys that overlaps the queries' block in part");
  return Sees::kNothing;
}

// sum + part, written into whichever of the two this device may; part is this kernel's own.
at::Tensor accumulated(const KernelContext& context, size_t sum_at, at::Tensor part) {
  const at::Tensor& sum = input(context, sum_at);
  if (context.may_reuse(sum_at)) return at::Tensor(sum).add_(part);
  return part.scalar_type() == sum.scalar_type() ? part.add_(sum) : sum + part;
}

void step_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RingAttrs>();
  const at::Tensor& q = input(context, 0);
  const at::ScalarType wide = scalar_type(context.output_meta(0).dtype);
  const bool is_first = context.num_inputs() == 3;
  const Sees what = sees(context.input_box(0), context.input_box(1), attributes.is_causal);
  if (what == Sees::kNothing) {
    if (is_first) {
      set_output(context, 0, at::zeros(q.sizes(), q.options().dtype(wide)));
      set_output(context, 1,
                 at::full(output_sizes(context, 1), -std::numeric_limits<double>::infinity(), q.options().dtype(wide)));
    } else {
      context.output(0) = context.input(3);
      context.output(1) = context.input(4);
    }
    return;
  }
  std::vector<int64_t> map = head_map(context, 0);
  const at::Tensor k = expand_heads(input(context, 1), map), v = expand_heads(input(context, 2), map);
  auto [part, part_lse] =
      at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, what == Sees::kDiagonal, {}, attributes.scale);
  part = part.to(wide);
  part_lse = part_lse.to(wide);
  if (is_first) {
    set_output(context, 0, part);
    set_output(context, 1, part_lse);
    return;
  }
  const at::Tensor& lse = input(context, 4);
  const at::Tensor merged = at::logaddexp(lse, part_lse);
  // A sum as large as q is all that a device may hold besides the blocks, so products are taken in place.
  const at::Tensor sum_scale = (lse - merged).exp_().unsqueeze(-1);
  at::Tensor sum = context.may_reuse(3) ? at::Tensor(input(context, 3)).mul_(sum_scale) : input(context, 3) * sum_scale;
  part.mul_((part_lse - merged).exp_().unsqueeze(-1));
  set_output(context, 0, sum.add_(part));
  set_output(context, 1, merged);
}

void grad_step_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RingAttrs>();
  const Sees what = sees(context.input_box(1), context.input_box(2), attributes.is_causal);
  const bool is_first = context.num_inputs() == 6;
  if (what == Sees::kNothing) {
    for (size_t i = 0; i < 3; ++i) {
      if (is_first) {
        set_output(context, i, at::zeros(output_sizes(context, i), tensor_options(context.output_meta(i).dtype)));
      } else {
        context.output(i) = context.input(6 + i);
      }
    }
    return;
  }
  const at::Tensor &q = input(context, 1), &g = input(context, 0), &out = input(context, 4);
  std::vector<int64_t> map = head_map(context, 1);
  const at::Tensor k = expand_heads(input(context, 2), map), v = expand_heads(input(context, 3), map);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      g, q, k, v, out, input(context, 5), 0.0, what == Sees::kDiagonal, {}, attributes.scale);
  // One after the other, so that each part is gone before the next one is needed.
  const auto add = [&](size_t i, at::Tensor part) {
    set_output(
        context, i,
        is_first ? part.to(scalar_type(context.output_meta(i).dtype)) : accumulated(context, 6 + i, std::move(part)));
  };
  add(0, std::exchange(dq, {}));
  add(1, collapse_heads(std::exchange(dk, {}), map, output_sizes(context, 1)));
  add(2, collapse_heads(std::exchange(dv, {}), map, output_sizes(context, 2)));
}
#endif

}  // namespace

constinit OperatorDef ring_attention_step_op = {.name = "ring_attention_step",
                                                .signature = "ring_attention_step(q, k, v, sum, lse) -> (sum, lse)",
                                                .attributes = attribute_codec<RingAttrs>(),
                                                .infer = step_infer,
                                                .kernel = DTORCH_KERNEL(step_kernel)};
constinit OperatorDef ring_attention_grad_step_op = {
    .name = "ring_attention_grad_step",
    .signature = "ring_attention_grad_step(g, q, k, v, out, lse, dq, dk, dv) -> (dq, dk, dv)",
    .attributes = attribute_codec<RingAttrs>(),
    .infer = grad_step_infer,
    .kernel = DTORCH_KERNEL(grad_step_kernel)};

}  // namespace dtorch
