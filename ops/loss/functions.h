// User-facing losses. Words and defaults are PyTorch's; means are over the global tensor, however unevenly it is
// sharded. All throw ShapeError, DTypeError or PlacementError at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "ops/nn/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// --- of pairs of elements, with broadcasting; gradients for input and target
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
                Where where = Where::current());
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
               Where where = Where::current());
// Quadratic within beta (huber_loss: delta) of the target, linear outside. beta >= 0, delta > 0.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
                      double beta = 1.0, Where where = Where::current());
Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean, double delta = 1.0,
                  Where where = Where::current());
// input: probabilities in [0, 1]; logarithms are clamped at -100. weight (may be undefined) is multiplied into the
// elements' losses.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                            Reduction reduction = Reduction::kMean, Where where = Where::current());
// input: logits. pos_weight (may be undefined; gets no gradient) multiplies the loss of positive targets.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                                        Reduction reduction = Reduction::kMean, const Tensor& pos_weight = {},
                                        Where where = Where::current());
// input: log-probabilities; target: probabilities, or their logarithms with log_target. The mean is over elements;
// PyTorch's batchmean is kSum divided by input.size(0).
Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
              bool log_target = false, Where where = Where::current());
// log(1 + exp(-target input)), target 1 or -1.
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::kMean,
                        Where where = Where::current());
// input where target is 1, max(0, margin - input) where it is -1.
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin = 1.0,
                            Reduction reduction = Reduction::kMean, Where where = Where::current());
// max(0, -target (input1 - input2) + margin), target 1 or -1.
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0.0,
                           Reduction reduction = Reduction::kMean, Where where = Where::current());
// var: positive variances of input's shape, or with the last dim missing or 1; clamped at eps without effect on its
// gradient.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full = false,
                         double eps = 1e-6, Reduction reduction = Reduction::kMean, Where where = Where::current());
// input: logarithm of the expected count, or the count itself. full: with Stirling's approximation of log(target!).
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input = true, bool full = false,
                        double eps = 1e-8, Reduction reduction = Reduction::kMean, Where where = Where::current());

// --- of classes
// input [C], [N, C] or [N, C, d...] of log-probabilities, target [], [N] or [N, d...] of class numbers, weight [C] or
// undefined (it gets no gradient). C may be sharded: only a number a row (sum and mean: one number) travels. kMean
// divides by the total weight of targets that aren't ignore_index, of the whole global batch; when there is none the
// loss is 0 (PyTorch gives NaN). Targets outside [0, C) that aren't ignore_index are an error of the kernel.
Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100,
                Reduction reduction = Reduction::kMean, Where where = Where::current());
// input [N, C], target [N], weight [C] or undefined: sum over j != target of max(0, margin - input[target] +
// input[j])^p weight[target] / C. C must not be sharded. p: 1 or 2.
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p = 1, double margin = 1.0,
                         const Tensor& weight = {}, Reduction reduction = Reduction::kMean,
                         Where where = Where::current());

// --- of vectors; the vectors' dim may be sharded
// x1 x2 / (max(|x1|, eps) max(|x2|, eps)) along dim, with broadcasting.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim = 1, double eps = 1e-8,
                         Where where = Where::current());
// p-norm of x1 - x2 + eps along the last dim.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p = 2.0, double eps = 1e-6, bool keepdim = false,
                         Where where = Where::current());
// input1, input2 [N, D] with target [N], or [D] with []; target 1 or -1.
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0.0,
                             Reduction reduction = Reduction::kMean, Where where = Where::current());
// max(0, d(anchor, positive) - d(anchor, negative) + margin) with d the pairwise distance; swap: with the smaller of
// d(anchor, negative) and d(positive, negative).
struct TripletMarginOptions {
  double margin = 1.0, p = 2.0, eps = 1e-6;
  bool swap = false;
  Reduction reduction = Reduction::kMean;
};
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options = {}, Where where = Where::current());
// x / max(p-norm of x along dim, eps).
Tensor normalize(const Tensor& x, double p = 2.0, int64_t dim = 1, double eps = 1e-12, Where where = Where::current());

}  // namespace dtorch
