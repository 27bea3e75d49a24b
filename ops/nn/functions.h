// User-facing functions of the neural-network operators. Words, argument order and defaults are PyTorch's where PyTorch
// has them. All throw ShapeError / DTypeError / PlacementError at the call.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch {

// exp(x) / sum(exp(x)) over `dim`, which must not be sharded.
Tensor softmax(const Tensor& x, int64_t dim, Where where = Where::current());
Tensor log_softmax(const Tensor& x, int64_t dim, Where where = Where::current());
// Of x converted to `dtype` first.
Tensor softmax(const Tensor& x, int64_t dim, DType dtype, Where where = Where::current());
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype, Where where = Where::current());
// softmax of -x.
Tensor softmin(const Tensor& x, int64_t dim, Where where = Where::current());
// softmax((logits + Gumbel noise) / tau); hard: its largest element as 1, the others 0, with the gradient of the soft
// one. The noise is a function of (seed, call, global element number). `dim` must not be sharded.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1.0, bool hard = false, int64_t dim = -1,
                      Where where = Where::current());
// a sigmoid(b) with a and b the halves of x along `dim`, which must not be sharded.
Tensor glu(const Tensor& x, int64_t dim = -1, Where where = Where::current());
// x1 [..., I], x2 [..., J], weight [O, I, J], bias [O] or undefined -> sum over i, j of x1 weight x2, + bias [..., O].
Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias = {},
                Where where = Where::current());

// Rows of weight [V, D] at ids [...] -> [..., D]. weight Shard(0) on an axis (vocabulary-parallel): each device looks
// up its own rows and the result is summed over the axis (Replicate); Shard(1): result Shard(last). ids outside [0, V)
// are an error of the kernel.
Tensor embedding(const Tensor& ids, const Tensor& weight, Where where = Where::current());

// x [..., D] * rsqrt(mean(x * x, last dim) + eps) * weight [D]; the last dim must not be sharded.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5, Where where = Where::current());
// Over the last normalized_shape.size() dims; weight and bias of that shape, or undefined.
Tensor layer_norm(const Tensor& x, const std::vector<int64_t>& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5, Where where = Where::current());

// Half-split rotary embedding of x [B, H, T, D]: with angle(p, i) = p * theta^(-2i/D), p = first_position + global
// index in T, [x1, x2] -> [x1 cos - x2 sin, x2 cos + x1 sin]. Angles are computed in float64.
struct RotaryOptions {
  double theta = 10000.0;
  int64_t first_position = 0;
};
Tensor rotary_embedding(const Tensor& x, const RotaryOptions& options = {}, Where where = Where::current());

// Where a ring (an axis named ring_cp) has a causal mask: rows that each device computes. kContiguous: its own, so that
// the last device has the most to do. kBalanced: all have the same to do; rows are exchanged first and come back at the
// end. kAuto: balanced where the sequence is long enough for that to pay.
enum class RingOrder : uint8_t { kAuto, kContiguous, kBalanced };

// q [B, H, T, D], k and v [B, KV, S, D] -> [B, H, T, D]; query head j uses key/value head j * KV / H (H a multiple of
// KV). Heads may be sharded: q, k and v Shard(1) when both split on the same groups, or q Shard(1) with k and v
// Replicate. Queries may be sharded with whole k and v.
struct AttentionOptions {
  bool is_causal = false;            // query t sees keys 0 .. t + S - T; not together with attn_mask
  std::optional<double> scale = {};  // 1 / sqrt(D)
  // Broadcastable to [B, H, T, S]: bool (true: the key is seen) or q's dtype (added to the scores; has a gradient).
  // Rows that see no key are 0. S must not be sharded.
  Tensor attn_mask = {};
  // Of the weights of seen keys; the mask is a function of (seed, call, global element number in [B, H, T, S]).
  double dropout_p = 0.0;
  RingOrder ring_order = RingOrder::kAuto;
};
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {}, Where where = Where::current());

enum class Reduction : uint8_t { kMean, kSum, kNone };
// logits [..., V] (floating), targets [...] (int64). kMean: over all targets of the global batch that aren't
// ignore_index, whatever the sharding; when all are ignored the loss is 0 (documented: PyTorch gives NaN). logits may
// be sharded on V: only scalars a row travel. Targets outside [0, V) that aren't ignore_index are an error of the
// kernel.
//
// weight [V] (it gets no gradient), label_smoothing in [0, 1] and targets of logits' shape (floating: probabilities,
// averaged over rows) as in PyTorch, but for V being the last dim; they may be sharded on V too.
struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};
  double label_smoothing = 0.0;
};
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options = {},
                     Where where = Where::current());
// Number of targets that aren't ignore_index: an int64 scalar, Replicate.
Tensor count_valid(const Tensor& targets, int64_t ignore_index = -100, Where where = Where::current());

// Zeroes elements with probability p and scales the others by 1 / (1 - p). The mask is a function of (seed, call,
// global element index), bitwise the same on any layout. training = false: x itself.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Where where = Where::current());

// dropout of whole channels, of x [N, C, ...]: every element of a channel shares its fate.
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true, Where where = Where::current());
// x [N, C, L] or [C, L]; x [N, C, H, W]; x [N, C, D, H, W] or [C, D, H, W].
Tensor dropout1d(const Tensor& x, double p = 0.5, bool training = true, Where where = Where::current());
Tensor dropout2d(const Tensor& x, double p = 0.5, bool training = true, Where where = Where::current());
Tensor dropout3d(const Tensor& x, double p = 0.5, bool training = true, Where where = Where::current());
// Dropped elements get SELU's lower limit, then all are scaled and shifted so that mean and variance are kept.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true, Where where = Where::current());

// Contraction of two tensors, e.g. einsum("btd,hkd->bhtk", x, w); every letter at most once in an operand. Sharding a
// contracted letter gives Partial(sum).
Tensor einsum(const std::string& formula, const Tensor& a, const Tensor& b, Where where = Where::current());

// --- optimizer steps and norms over lists of tensors on one mesh (each tensor with its own layout)
// ------------------------------------ Decoupled weight decay: p *= 1 - lr wd; m = b1 m + (1 - b1) g; v = b2 v + (1 -
// b2) g g; p -= lr / (1 - b1^step) m / (sqrt(v) / sqrt(1 - b2^step) + eps). `step` counts from 1. Gradients have the
// layout of their parameters. number: an int64 scalar, Replicate, that the devices have worked out: the number of this
// step, instead of `step`, or 0: nothing changes. Inputs whose last handle is dropped afterwards are updated in place
// (donation).
struct AdamWConstants {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
struct AdamWResult {
  std::vector<Tensor> params, first_moments, second_moments;
};
AdamWResult adamw_step(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                       const std::vector<Tensor>& first_moments, const std::vector<Tensor>& second_moments, double lr,
                       int64_t step, const AdamWConstants& constants, const Tensor& number = {},
                       Where where = Where::current());
// buf = momentum buf + g (buf = g at the first step: pass no buffers); p -= lr (buf + ...) as torch.optim.SGD without
// dampening.
struct SgdConstants {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
struct SgdResult {
  std::vector<Tensor> params, buffers;
};
SgdResult sgd_step(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                   const std::vector<Tensor>& buffers, double lr, const SgdConstants& constants,
                   const Tensor& number = {}, Where where = Where::current());
// Sum of squares of all elements of all tensors (each element counted once, however many devices hold it), as a float32
// scalar (float64 for float64 tensors), Replicate on their mesh.
Tensor sum_of_squares(const std::vector<Tensor>& tensors, Where where = Where::current());
// Each tensor times a scalar tensor (Replicate).
std::vector<Tensor> scale_all(const std::vector<Tensor>& tensors, const Tensor& factor, Where where = Where::current());

}  // namespace dtorch
