// Losses with every reduction, weights, ignored and soft targets.
#include "tests/layouts/calls.h"

namespace dtorch::test {
namespace {

Tensor ignoring(const Tensor& targets) { return where(targets == 1, -100, targets); }

}  // namespace

std::vector<Sample> loss_calls() {
  std::vector<Sample> calls = {
      call("of pairs", {f64({5, 3}), f64({5, 3})},
           [](const In& in) {
             return Out{mse_loss(in[0], in[1]), l1_loss(in[0], in[1], Reduction::kSum),
                        smooth_l1_loss(in[0], in[1], Reduction::kNone, 0.5),
                        huber_loss(in[0], in[1], Reduction::kMean, 0.7)};
           }),
      call("of broadcast pairs", {f64({5, 3}), f64({3})},
           [](const In& in) {
             return Out{mse_loss(in[0], in[1]), l1_loss(in[0], in[1], Reduction::kMean)};
           }),
      call("of nobody", {f64({0, 3}), f64({0, 3})},
           [](const In& in) {
             return Out{mse_loss(in[0], in[1], Reduction::kSum), l1_loss(in[0], in[1], Reduction::kNone)};
           }),
      call("binary", {unit({5, 3}), unit({5, 3}), unit({3})},
           [](const In& in) { return Out{binary_cross_entropy(in[0], in[1], in[2])}; }),
      call("binary with logits", {f64({5, 3}), unit({5, 3}), fixed({5, 1}), fixed({3})},
           [](const In& in) {
             return Out{binary_cross_entropy_with_logits(in[0], in[1], in[2], Reduction::kSum, in[3]),
                        binary_cross_entropy_with_logits(in[0], in[1])};
           }),
      call("divergence", {f64({5, 3}), unit({5, 3})},
           [](const In& in) {
             return Out{kl_div(log_softmax(in[0], 1), in[1]), kl_div(in[0], in[1], Reduction::kSum),
                        kl_div(in[0], in[1], Reduction::kMean, true)};
           }),
      call("cross entropy", {f64({5, 4}), ids({5}, 4)},
           [](const In& in) {
             return Out{cross_entropy(in[0], in[1]), cross_entropy(in[0], in[1], {.reduction = Reduction::kSum}),
                        cross_entropy(in[0], in[1], {.reduction = Reduction::kNone})};
           }),
      call("cross entropy of sequences", {f64({2, 5, 4}), ids({2, 5}, 4)},
           [](const In& in) {
             return Out{cross_entropy(in[0], ignoring(in[1])), count_valid(ignoring(in[1]))};
           }),
      call("cross entropy, all ignored", {f64({5, 4}), ids({5}, 1)},
           [](const In& in) {
             return Out{cross_entropy(in[0], in[1] - 100),
                        cross_entropy(in[0], in[1] - 100, {.reduction = Reduction::kSum})};
           }),
      call("cross entropy of another ignored class", {f64({5, 4}), ids({5}, 4)},
           [](const In& in) { return Out{cross_entropy(in[0], in[1], {.ignore_index = 2})}; }),
      call("cross entropy, smoothed", {f64({5, 4}), ids({5}, 4)},
           [](const In& in) { return Out{cross_entropy(in[0], ignoring(in[1]), {.label_smoothing = 0.2})}; }),
      call("cross entropy, weighted", {f64({5, 4}), ids({5}, 4), unit({4})},
           [](const In& in) { return Out{cross_entropy(in[0], ignoring(in[1]), {.weight = in[2]})}; }),
      call("cross entropy, weighted and smoothed", {f64({5, 4}), ids({5}, 4), unit({4})},
           [](const In& in) {
             return Out{cross_entropy(in[0], in[1], {.weight = in[2], .label_smoothing = 0.3}),
                        cross_entropy(in[0], ignoring(in[1]),
                                      {.reduction = Reduction::kNone, .weight = in[2], .label_smoothing = 0.1})};
           }),
      call("cross entropy with probabilities", {f64({5, 4}), unit({5, 4}), unit({4})},
           [](const In& in) {
             return Out{
                 cross_entropy(in[0], in[1]),
                 cross_entropy(in[0], in[1], {.reduction = Reduction::kSum, .weight = in[2], .label_smoothing = 0.1})};
           }),
      call("cross entropy of large logits", {f64({5, 7}), ids({5}, 7)},
           [](const In& in) { return Out{cross_entropy(in[0] * 500, in[1])}; }),
      call("cross entropy of few classes", {f64({5, 2}), ids({5}, 2)},
           [](const In& in) { return Out{cross_entropy(in[0], in[1])}; }),
      call("cross entropy of one class", {f64({5, 1}), ids({5}, 1)},
           [](const In& in) { return Out{cross_entropy(in[0], in[1])}; }),
      call(
          "cross entropy of bfloat16", {of({6, 8}, kBFloat16), ids({6}, 8)},
          [](const In& in) { return Out{cross_entropy(in[0], in[1])}; }, 0.02),
      call("likelihood", {f64({5, 4}), ids({5}, 4), unit({4})},
           [](const In& in) {
             const Tensor p = log_softmax(in[0], 1);
             return Out{nll_loss(p, in[1]), nll_loss(p, ignoring(in[1]), in[2]),
                        nll_loss(p, in[1], {}, -100, Reduction::kNone)};
           }),
      call("likelihood of images", {f64({2, 4, 3, 2}), ids({2, 3, 2}, 4)},
           [](const In& in) {
             return Out{nll_loss(in[0], ignoring(in[1])), nll_loss(in[0], in[1], {}, 0, Reduction::kSum)};
           }),
      call("margins", {f64({5, 4}), ids({5}, 4)},
           [](const In& in) {
             return Out{multi_margin_loss(in[0], in[1]), multi_margin_loss(in[0], in[1], 2, 0.5)};
           }),
      call("of signs", {f64({6}), f64({6}), whole({6})},
           [](const In& in) {
             const Tensor sign = to(bitwise_and(in[2], 1) * 2 - 1, kFloat64);
             return Out{soft_margin_loss(in[0], sign), hinge_embedding_loss(in[0], sign),
                        margin_ranking_loss(in[0], in[1], sign, 0.1)};
           }),
      call("of counts", {f64({5, 3}), unit({5, 3}), positive({5, 3})},
           [](const In& in) {
             return Out{poisson_nll_loss(in[0], in[1]), gaussian_nll_loss(in[0], in[1], in[2]),
                        poisson_nll_loss(in[2], in[1], false)};
           }),
      call("of vectors", {f64({5, 3}), f64({5, 3}), f64({5, 3})},
           [](const In& in) {
             return Out{cosine_similarity(in[0], in[1]),
                        pairwise_distance(in[0], in[1]),
                        triplet_margin_loss(in[0], in[1], in[2]),
                        normalize(in[0]),
                        normalize(in[0], 2, 0),
                        cosine_similarity(in[0], in[1], 0)};
           }),
      call("a mean over uneven tokens", {f64({2, 8, 6}), ids({2, 8}, 6), mask({2, 8})},
           [](const In& in) {
             return Out{cross_entropy(in[0], where(in[2], in[1], -100)),
                        cross_entropy(in[0], where(in[2], in[1], -100), {.reduction = Reduction::kNone})};
           }),
      call(
          "log of softmax by hand", {f64({5, 4}), ids({5}, 4)},
          [](const In& in) { return Out{-mean(gather(in[0] - logsumexp(in[0], {1}, true), 1, unsqueeze(in[1], 1)))}; }),
  };
  for (Sample& sample : calls) {
    if (sample.tolerance == 0) sample.tolerance = 1e-10;
  }
  return calls;
}

}  // namespace dtorch::test
