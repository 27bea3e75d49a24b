// Cases of libtorch_cases_aten.h: losses, attention with masks, ranges.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bilinear.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cosine_embedding_loss.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/hinge_embedding_loss.h>
#include <ATen/ops/huber_loss.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/margin_ranking_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/multi_margin_loss.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pairwise_distance.h>
#include <ATen/ops/poisson_nll_loss.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/soft_margin_loss.h>
#include <ATen/ops/triplet_margin_loss.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <numbers>

#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {
namespace {

constexpr int64_t kNone = 0, kMean = 1, kSum = 2;

SampleInput unit(Shape shape) { return {shape, kFloat32, SampleFill::kUnit}; }
SampleInput fixed(SampleInput input) {
  input.differentiable = false;
  return input;
}

// 1 and -1.
Tensor signs(const Tensor& x) { return where(gt(x, 0), ones_like(x), full_like(x, -1)); }
at::Tensor signs(const at::Tensor& x) { return at::where(x.gt(0), at::ones_like(x), -at::ones_like(x)); }

// As torch.nn.functional.gaussian_nll_loss, which has no counterpart in C++: the gradient passes the clamp.
at::Tensor gaussian(const at::Tensor& x, const at::Tensor& target, const at::Tensor& var, double eps) {
  const at::Tensor clamped = var.clone();
  clamped.detach().clamp_(eps);
  return 0.5 * (clamped.log() + (x - target).square() / clamped) + 0.5 * std::log(2 * std::numbers::pi);
}

// As torch.nn.functional.normalize.
at::Tensor normalized(const at::Tensor& x, double p, int64_t dim) {
  return x / x.norm(p, dim, true).clamp_min(1e-12).expand_as(x);
}

void add_pairs(LibTorchCases& cases) {
  DTORCH_CASE("mse_loss", ({normal({5, 33}), normal({5, 33})}), mse_loss(in[0], in[1]), at::mse_loss(in[0], in[1]));
  DTORCH_CASE("mse_loss", ({normal({5, 33}), normal({5, 33})}), mse_loss(in[0], in[1], Reduction::kNone),
              at::mse_loss(in[0], in[1], kNone));
  DTORCH_CASE("l1_loss", ({normal({5, 33}), normal({5, 33})}), l1_loss(in[0], in[1], Reduction::kSum),
              at::l1_loss(in[0], in[1], kSum));
  DTORCH_CASE("smooth_l1_loss", ({normal({5, 33}), normal({5, 33})}),
              smooth_l1_loss(in[0], in[1], Reduction::kMean, 0.7), at::smooth_l1_loss(in[0], in[1], kMean, 0.7));
  DTORCH_CASE("smooth_l1_loss", ({normal({5, 33}), normal({5, 33})}),
              smooth_l1_loss(in[0], in[1], Reduction::kNone, 0.0), at::smooth_l1_loss(in[0], in[1], kNone, 0.0));
  DTORCH_CASE("huber_loss", ({normal({5, 33}), normal({5, 33})}), huber_loss(in[0], in[1], Reduction::kMean, 0.7),
              at::huber_loss(in[0], in[1], kMean, 0.7));
  DTORCH_CASE("binary_cross_entropy", ({unit({5, 33}), unit({5, 33}), fixed(positive({5, 33}))}),
              binary_cross_entropy(in[0], in[1], in[2]), at::binary_cross_entropy(in[0], in[1], in[2]));
  DTORCH_CASE("binary_cross_entropy", ({unit({5, 33}), unit({5, 33})}),
              binary_cross_entropy(in[0], in[1], {}, Reduction::kNone),
              at::binary_cross_entropy(in[0], in[1], {}, kNone));
  DTORCH_CASE("binary_cross_entropy_with_logits", ({normal({5, 33}), unit({5, 33})}),
              binary_cross_entropy_with_logits(in[0], in[1]), at::binary_cross_entropy_with_logits(in[0], in[1]));
  DTORCH_CASE("binary_cross_entropy_with_logits",
              ({normal({5, 33}), unit({5, 33}), fixed(positive({33})), fixed(positive({33}))}),
              binary_cross_entropy_with_logits(in[0], in[1], in[2], Reduction::kNone, in[3]),
              at::binary_cross_entropy_with_logits(in[0], in[1], in[2], in[3], kNone));
  DTORCH_CASE("kl_div", ({normal({5, 33}), positive({5, 33})}), kl_div(in[0], in[1]), at::kl_div(in[0], in[1]));
  DTORCH_CASE("kl_div", ({normal({5, 33}), normal({5, 33})}), kl_div(in[0], in[1], Reduction::kSum, true),
              at::kl_div(in[0], in[1], kSum, true));
  DTORCH_CASE("soft_margin_loss", ({normal({5, 33}), fixed(normal({5, 33}))}), soft_margin_loss(in[0], in[1]),
              at::soft_margin_loss(in[0], in[1]));
  DTORCH_CASE("hinge_embedding_loss", ({normal({5, 33}), fixed(normal({5, 33}))}),
              hinge_embedding_loss(in[0], signs(in[1]), 0.8), at::hinge_embedding_loss(in[0], signs(in[1]), 0.8));
  DTORCH_CASE("margin_ranking_loss", ({normal({33}), normal({33}), fixed(normal({33}))}),
              margin_ranking_loss(in[0], in[1], signs(in[2]), 0.3),
              at::margin_ranking_loss(in[0], in[1], signs(in[2]), 0.3));
  DTORCH_CASE("gaussian_nll_loss", ({normal({5, 33}), normal({5, 33}), positive({5, 33})}),
              gaussian_nll_loss(in[0], in[1], in[2], true, 0.5, Reduction::kNone), gaussian(in[0], in[1], in[2], 0.5));
  DTORCH_CASE("poisson_nll_loss", ({normal({5, 33}), positive({5, 33})}), poisson_nll_loss(in[0], in[1]),
              at::poisson_nll_loss(in[0], in[1], true, false, 1e-8, kMean));
  DTORCH_CASE("poisson_nll_loss", ({positive({5, 33}), fixed(positive({5, 33}))}),
              poisson_nll_loss(in[0], in[1], false, true, 1e-8, Reduction::kNone),
              at::poisson_nll_loss(in[0], in[1], false, true, 1e-8, kNone));
}

void add_classes(LibTorchCases& cases) {
  DTORCH_CASE("nll_loss", ({normal({15, 9}), ids({15}, 9)}), nll_loss(in[0], in[1], {}, 3),
              at::nll_loss_nd(in[0], in[1], {}, kMean, 3));
  DTORCH_CASE("nll_loss", ({normal({15, 9}), ids({15}, 9), fixed(positive({9}))}), nll_loss(in[0], in[1], in[2]),
              at::nll_loss_nd(in[0], in[1], in[2]));
  DTORCH_CASE("nll_loss", ({normal({5, 9, 4, 3}), ids({5, 4, 3}, 9), fixed(positive({9}))}),
              nll_loss(in[0], in[1], in[2], 2), at::nll_loss_nd(in[0], in[1], in[2], kMean, 2));
  DTORCH_CASE("nll_loss", ({normal({5, 9, 4}), ids({5, 4}, 9), fixed(positive({9}))}),
              nll_loss(in[0], in[1], in[2], 2, Reduction::kNone), at::nll_loss_nd(in[0], in[1], in[2], kNone, 2));
  DTORCH_CASE("nll_loss", ({normal({9}), ids({}, 9)}), nll_loss(in[0], in[1]), at::nll_loss_nd(in[0], in[1]));
  DTORCH_CASE("multi_margin_loss", ({normal({15, 9}), ids({15}, 9)}), multi_margin_loss(in[0], in[1]),
              at::multi_margin_loss(in[0], in[1]));
  DTORCH_CASE("multi_margin_loss", ({normal({15, 9}), ids({15}, 9), fixed(positive({9}))}),
              multi_margin_loss(in[0], in[1], 2, 0.8, in[2], Reduction::kNone),
              at::multi_margin_loss(in[0], in[1], 2, 0.8, in[2], kNone));
}

// Norms are roots of sums here, so that they combine over sharded dims; LibTorch has a kernel that scales as it sums.
void add_vectors(LibTorchCases& cases) {
  DTORCH_CASE_WITHIN(1e-6, "cosine_similarity", ({normal({5, 33}), normal({5, 33})}), cosine_similarity(in[0], in[1]),
                     at::cosine_similarity(in[0], in[1]));
  DTORCH_CASE_WITHIN(1e-6, "cosine_similarity", ({normal({5, 33}), normal({5, 1})}), cosine_similarity(in[0], in[1], 0),
                     at::cosine_similarity(in[0], in[1], 0));
  DTORCH_CASE_WITHIN(1e-6, "pairwise_distance", ({normal({5, 33}), normal({5, 33})}), pairwise_distance(in[0], in[1]),
                     at::pairwise_distance(in[0], in[1]));
  DTORCH_CASE_WITHIN(1e-6, "pairwise_distance", ({normal({5, 33}), normal({33})}),
                     pairwise_distance(in[0], in[1], 3.0, 1e-6, true),
                     at::pairwise_distance(in[0], in[1], 3.0, 1e-6, true));
  DTORCH_CASE("cosine_embedding_loss", ({normal({5, 33}), normal({5, 33}), fixed(normal({5}))}),
              cosine_embedding_loss(in[0], in[1], signs(in[2]), 0.1),
              at::cosine_embedding_loss(in[0], in[1], signs(in[2]), 0.1));
  DTORCH_CASE_WITHIN(1e-5, "triplet_margin_loss", ({normal({5, 33}), normal({5, 33}), normal({5, 33})}),
                     triplet_margin_loss(in[0], in[1], in[2], {.margin = 2, .swap = true}),
                     at::triplet_margin_loss(in[0], in[1], in[2], 2, 2, 1e-6, true));
  DTORCH_CASE_WITHIN(1e-6, "normalize", ({normal({5, 33})}), normalize(in[0]), normalized(in[0], 2, 1));
  DTORCH_CASE_WITHIN(1e-6, "normalize", ({normal({5, 33})}), normalize(in[0], 1, 0), normalized(in[0], 1, 0));
}

// The classes' dim is LibTorch's dim 1, ours the last.
void add_cross_entropy(LibTorchCases& cases) {
  DTORCH_CASE("cross_entropy", ({normal({15, 9}), ids({15}, 9), fixed(positive({9}))}),
              cross_entropy(in[0], in[1], {.ignore_index = 3, .weight = in[2]}),
              at::cross_entropy_loss(in[0], in[1], in[2], kMean, 3));
  DTORCH_CASE_WITHIN(1e-6, "cross_entropy", ({normal({15, 9}), ids({15}, 9), fixed(positive({9}))}),
                     cross_entropy(in[0], in[1], {.ignore_index = 3, .weight = in[2], .label_smoothing = 0.2}),
                     at::cross_entropy_loss(in[0], in[1], in[2], kMean, 3, 0.2));
  DTORCH_CASE_WITHIN(1e-6, "cross_entropy", ({normal({15, 9}), ids({15}, 9)}),
                     cross_entropy(in[0], in[1], {.reduction = Reduction::kNone, .label_smoothing = 0.2}),
                     at::cross_entropy_loss(in[0], in[1], {}, kNone, -100, 0.2));
  DTORCH_CASE_WITHIN(1e-6, "cross_entropy", ({normal({15, 9}), unit({15, 9}), fixed(positive({9}))}),
                     cross_entropy(in[0], in[1], {.weight = in[2], .label_smoothing = 0.1}),
                     at::cross_entropy_loss(in[0], in[1], in[2], kMean, -100, 0.1));
  DTORCH_CASE("cross_entropy", ({normal({15, 9}), unit({15, 9})}),
              cross_entropy(in[0], in[1], {.reduction = Reduction::kNone}),
              at::cross_entropy_loss(in[0], in[1], {}, kNone));
}

void add_layers(LibTorchCases& cases) {
  DTORCH_CASE("softmax", ({normal({5, 33})}), softmax(in[0], 1, kFloat64), in[0].softmax(1, at::kDouble));
  DTORCH_CASE("log_softmax", ({normal({5, 33})}), log_softmax(in[0], 1, kFloat64), in[0].log_softmax(1, at::kDouble));
  DTORCH_CASE("softmin", ({normal({5, 33})}), softmin(in[0], 1), (-in[0]).softmax(1));
  DTORCH_CASE("glu", ({normal({5, 34})}), glu(in[0]), at::glu(in[0]));
  DTORCH_CASE("glu", ({normal({6, 33})}), glu(in[0], 0), at::glu(in[0], 0));
  // Two contractions here, so that every dim can be sharded; LibTorch has one of three operands.
  DTORCH_CASE_WITHIN(1e-5, "bilinear", ({normal({5, 7}), normal({5, 3}), normal({4, 7, 3}), normal({4})}),
                     bilinear(in[0], in[1], in[2], in[3]), at::bilinear(in[0], in[1], in[2], in[3]));
  DTORCH_CASE("masked_attention", ({normal({2, 3, 5, 8}), normal({2, 3, 7, 8}), normal({2, 3, 7, 8}), bools({5, 7})}),
              scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = in[3]}),
              at::scaled_dot_product_attention(in[0], in[1], in[2], in[3]));
  DTORCH_CASE("masked_attention",
              ({normal({2, 4, 5, 8}), normal({2, 2, 7, 8}), normal({2, 2, 7, 8}), fixed(normal({2, 1, 5, 7}))}),
              scaled_dot_product_attention(in[0], in[1], in[2], {.scale = 0.7, .attn_mask = in[3]}),
              at::scaled_dot_product_attention(in[0], in[1], in[2], in[3], 0.0, false, 0.7, /*enable_gqa=*/true));
  // Most queries see no key.
  DTORCH_CASE("masked_attention",
              ({normal({2, 3, 5, 8}), normal({2, 3, 7, 8}), normal({2, 3, 7, 8}), fixed(normal({5, 7}))}),
              scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = gt(in[3], 1.5)}),
              at::scaled_dot_product_attention(in[0], in[1], in[2], in[3].gt(1.5)));
  // Where LibTorch is asked for the mask's gradient it makes the weights whole, by another kernel than without.
  DTORCH_CASE_WITHIN(1e-6, "masked_attention",
                     ({normal({2, 3, 5, 8}), normal({2, 3, 5, 8}), normal({2, 3, 5, 8}), normal({1, 3, 5, 5})}),
                     scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = in[3]}),
                     at::scaled_dot_product_attention(in[0], in[1], in[2], in[3]));
}

void add_ranges(LibTorchCases& cases) {
  cases.add(
      "linspace", {}, [](const Ours&) { return Ours{linspace(-1.5, 2, 33)}; },
      [](const Theirs&) { return Theirs{at::linspace(-1.5, 2, 33)}; });
  cases.add(
      "logspace", {}, [](const Ours&) { return Ours{logspace(-1.5, 2, 33, 3.0)}; },
      [](const Theirs&) { return Theirs{at::logspace(-1.5, 2, 33, 3.0)}; });
}

}  // namespace

void add_loss_cases(LibTorchCases& cases) {
  add_pairs(cases);
  add_classes(cases);
  add_vectors(cases);
  add_cross_entropy(cases);
  add_layers(cases);
  add_ranges(cases);
}

}  // namespace dtorch::test
