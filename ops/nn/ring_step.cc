// ring_attention_step(q, k, v, [sum, lse]) -> (sum, lse): attention of this device's queries over one piece of keys,
// added to what earlier pieces gave: softmax parts merge by their log-sum-exp. q, k and v are on meshes whose devices
// are permuted along the ring's axis, so that this device's place in them says which pieces of the sequence it has
// (ring_plan.h); they may be empty.
// ring_attention_grad_step(g, q, k, v, out, lse, [dq], [dk, dv]) -> (dq, dk, dv): the same for gradients; dk and dv
// travel with their keys. Sums are kept in float32 (float64 for float64). Composed by ring_attention.cc.
#include "ops/nn/ring_step.h"

#include "ops/nn/attention.h"
#include "ops/nn/attention_kernels.h"
#include "ops/nn/operators.h"
#include "ops/nn/ring_plan.h"

#if DTORCH_WITH_KERNELS
#include <ATen/TensorOperators.h>
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
// Number along the sequence of the piece that this device has of input i.
int64_t piece_of(const KernelContext& context, size_t i, int64_t piece) {
  const auto& attributes = context.attributes<RingAttrs>();
  const DeviceMesh& mesh = context.input_meta(i).layout.mesh();
  return mesh.coordinate_of_index(mesh.index_of(context.device()))[attributes.axis] * attributes.pieces + piece;
}

Sees what_is_seen(const KernelContext& context, size_t q_at, size_t k_at) {
  if (context.input_box(q_at).empty() || context.input_box(k_at).empty()) return Sees::kNothing;
  const auto& attributes = context.attributes<RingAttrs>();
  return sees(piece_of(context, q_at, attributes.q_piece), piece_of(context, k_at, attributes.k_piece),
              attributes.is_causal);
}

// Whether a sum may be overwritten, and what is written has the strides that a new result would have.
bool may_add_to(const KernelContext& context, size_t sum_at) {
  return context.may_reuse(sum_at) && input(context, sum_at).is_non_overlapping_and_dense();
}

// sum + part with the sum's strides, written into whichever of the two this device may; part is this kernel's own.
at::Tensor accumulated(const KernelContext& context, size_t sum_at, at::Tensor part) {
  const at::Tensor& sum = input(context, sum_at);
  if (may_add_to(context, sum_at)) return at::Tensor(sum).add_(part);
  const bool fits = part.scalar_type() == sum.scalar_type() && part.strides() == sum.strides();
  return fits ? part.add_(sum) : sum + part;
}

void step_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RingAttrs>();
  const at::Tensor& q = input(context, 0);
  const at::ScalarType wide = scalar_type(context.output_meta(0).dtype);
  const bool is_first = !attributes.has_sum;
  const Sees what = what_is_seen(context, 0, 1);
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
  auto [part, part_lse] = attend(q, k, v, {what == Sees::kDiagonal, {}}, attributes.scale);
  part = part.to(wide);
  part_lse = part_lse.to(wide);
  if (is_first) {
    set_output(context, 0, part);
    set_output(context, 1, part_lse);
    return;
  }
  const at::Tensor& lse = input(context, 4);
  const at::Tensor merged = at::logaddexp(lse, part_lse);
  // One sum as large as q is all that a device may hold besides the blocks. So the new one takes the part's place, also
  // where the old one isn't known to go yet: its release may come with the next piece.
  part.mul_((part_lse - merged).exp_().unsqueeze(-1));
  set_output(context, 0, part.addcmul_(input(context, 3), (lse - merged).exp_().unsqueeze(-1)));
  set_output(context, 1, merged);
}

void grad_step_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<RingAttrs>();
  const Sees what = what_is_seen(context, 1, 2);
  // Where the sums of dq, dk and dv so far are among the inputs; 0: they begin here.
  const size_t keys_at = attributes.has_key_gradients ? (attributes.has_sum ? 7 : 6) : 0;
  const size_t sums_at[] = {attributes.has_sum ? size_t{6} : 0, keys_at, keys_at > 0 ? keys_at + 1 : 0};
  if (what == Sees::kNothing) {
    for (size_t i = 0; i < 3; ++i) {
      if (sums_at[i] == 0) {
        set_output(context, i,
                   at::zeros(output_sizes(context, i),
                             input(context, 1).options().dtype(scalar_type(context.output_meta(i).dtype))));
      } else {
        context.output(i) = context.input(sums_at[i]);
      }
    }
    return;
  }
  const at::Tensor &q = input(context, 1), &g = input(context, 0), &out = input(context, 4);
  std::vector<int64_t> map = head_map(context, 1);
  const at::Tensor k = expand_heads(input(context, 2), map), v = expand_heads(input(context, 3), map);
  auto [dq, dk, dv] =
      attend_gradient(g, q, k, v, out, input(context, 5), {what == Sees::kDiagonal, {}}, attributes.scale);
  // One after the other, so that each part is gone before the next one is needed.
  const auto add = [&](size_t i, at::Tensor part) {
    set_output(context, i,
               sums_at[i] == 0 ? part.to(scalar_type(context.output_meta(i).dtype))
                               : accumulated(context, sums_at[i], std::move(part)));
  };
  add(0, std::exchange(dq, {}));
  add(1, collapse_heads(std::exchange(dk, {}), map, output_sizes(context, 1)));
  add(2, collapse_heads(std::exchange(dv, {}), map, output_sizes(context, 2)));
}
#endif

}  // namespace

constinit OperatorDef ring_attention_step_op = {
    .name = "ring_attention_step",
    .signature = "scaled_dot_product_attention(q, k, v, sum, lse) -> (sum, lse)",
    .attributes = attribute_codec<RingAttrs>(),
    .infer = step_infer,
    .kernel = DTORCH_KERNEL(step_kernel),
};
constinit OperatorDef ring_attention_grad_step_op = {
    .name = "ring_attention_grad_step",
    .signature = "scaled_dot_product_attention_grad(g, q, k, v, out, lse, dq, dk, dv) -> (dq, dk, dv)",
    .attributes = attribute_codec<RingAttrs>(),
    .infer = grad_step_infer,
    .kernel = DTORCH_KERNEL(grad_step_kernel),
};

}  // namespace dtorch
