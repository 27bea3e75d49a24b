#include "tests/ops/libtorch_cases_aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>

namespace dtorch::test {
namespace {

// From its definition: x [B, H, T, D], the halves of D rotated by the angle position / theta^(2i / D).
at::Tensor rotated(const at::Tensor& x, double theta, int64_t first_position) {
  const int64_t positions = x.size(2), half = x.size(3) / 2;
  const at::TensorOptions float64 = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor position = at::arange(first_position, first_position + positions, float64).unsqueeze(1);
  const at::Tensor exponent = at::arange(half, float64) * (-2.0 / static_cast<double>(2 * half));
  const at::Tensor angle = position * at::pow(theta, exponent);
  const at::Tensor cosine = angle.cos().to(x.scalar_type()), sine = angle.sin().to(x.scalar_type());
  const at::Tensor first = x.slice(3, 0, half), second = x.slice(3, half);
  return at::cat({first * cosine - second * sine, second * cosine + first * sine}, 3);
}

void add_elementwise(LibTorchCases& cases) {
  DTORCH_CASE("add", ({normal({5, 33}), normal({33})}), in[0] + in[1], in[0] + in[1]);
  DTORCH_CASE("add", ({normal({5, 33})}), in[0] + 1.5, in[0] + 1.5);
  DTORCH_CASE("sub", ({normal({5, 33}), normal({5, 1})}), in[0] - in[1], in[0] - in[1]);
  DTORCH_CASE("sub", ({normal({5, 33})}), 2 - in[0], 2 - in[0]);
  DTORCH_CASE("mul", ({normal({5, 33}), normal({5, 33})}), in[0] * in[1], in[0] * in[1]);
  DTORCH_CASE("mul_number", ({normal({5, 33})}), in[0] * 0.3, in[0] * 0.3);
  DTORCH_CASE("div", ({normal({5, 33}), positive({33})}), in[0] / in[1], in[0] / in[1]);
  DTORCH_CASE("div_number", ({normal({5, 33})}), in[0] / 3, in[0] / 3);
  DTORCH_CASE("pow", ({positive({5, 33}), normal({33})}), pow(in[0], in[1]), in[0].pow(in[1]));
  DTORCH_CASE("pow_number", ({normal({5, 33})}), pow(in[0], 3), in[0].pow(3));
  DTORCH_CASE("minimum", ({normal({5, 33}), normal({5, 33})}), minimum(in[0], in[1]), in[0].minimum(in[1]));
  DTORCH_CASE("maximum", ({normal({5, 33}), normal({5, 33})}), maximum(in[0], in[1]), in[0].maximum(in[1]));
  DTORCH_CASE("neg", ({normal({5, 33})}), -in[0], in[0].neg());
  DTORCH_CASE("abs", ({normal({5, 33})}), abs(in[0]), in[0].abs());
  DTORCH_CASE("sign", ({normal({5, 33})}), sign(in[0]), in[0].sign());
  DTORCH_CASE("floor", ({normal({5, 33})}), floor(in[0]), in[0].floor());
  DTORCH_CASE("ceil", ({normal({5, 33})}), ceil(in[0]), in[0].ceil());
  DTORCH_CASE("round", ({normal({5, 33})}), round(in[0]), in[0].round());
  DTORCH_CASE("square", ({normal({5, 33})}), square(in[0]), in[0].square());
  DTORCH_CASE("reciprocal", ({positive({5, 33})}), reciprocal(in[0]), in[0].reciprocal());
  DTORCH_CASE("exp", ({normal({5, 33})}), exp(in[0]), in[0].exp());
  DTORCH_CASE("log", ({positive({5, 33})}), log(in[0]), in[0].log());
  DTORCH_CASE("sqrt", ({positive({5, 33})}), sqrt(in[0]), in[0].sqrt());
  DTORCH_CASE("rsqrt", ({positive({5, 33})}), rsqrt(in[0]), in[0].rsqrt());
  DTORCH_CASE("sin", ({normal({5, 33})}), sin(in[0]), in[0].sin());
  DTORCH_CASE("cos", ({normal({5, 33})}), cos(in[0]), in[0].cos());
  DTORCH_CASE("erf", ({normal({5, 33})}), erf(in[0]), in[0].erf());
  DTORCH_CASE("relu", ({normal({5, 33})}), relu(in[0]), in[0].relu());
  DTORCH_CASE("sigmoid", ({normal({5, 33})}), sigmoid(in[0]), in[0].sigmoid());
  DTORCH_CASE("tanh", ({normal({5, 33})}), tanh(in[0]), in[0].tanh());
  DTORCH_CASE("silu", ({normal({5, 33})}), silu(in[0]), at::silu(in[0]));
  DTORCH_CASE("gelu", ({normal({5, 33})}), gelu(in[0]), at::gelu(in[0]));
  DTORCH_CASE("gelu", ({normal({5, 33})}), gelu(in[0], "tanh"), at::gelu(in[0], "tanh"));
  DTORCH_CASE("clamp", ({normal({5, 33})}), clamp(in[0], -0.5, 0.7), in[0].clamp(-0.5, 0.7));
  DTORCH_CASE("to", ({normal({5, 33})}), to(in[0], kBFloat16), in[0].to(at::kBFloat16));
  DTORCH_CASE("where", ({bools({5, 33}), normal({5, 33}), normal({33})}), where(in[0], in[1], in[2]),
              at::where(in[0], in[1], in[2]));
  DTORCH_CASE("where", ({normal({5, 33}), bools({33})}), masked_fill(in[0], in[1], -2.5),
              in[0].masked_fill(in[1], -2.5));
  DTORCH_CASE("eq", ({bools({40}), bools({40})}), in[0] == in[1], in[0].eq(in[1]));
  DTORCH_CASE("ne", ({ids({40}, 3), ids({40}, 3)}), in[0] != in[1], in[0].ne(in[1]));
  DTORCH_CASE("lt", ({normal({5, 33}), normal({33})}), in[0] < in[1], in[0].lt(in[1]));
  DTORCH_CASE("le", ({ids({40}, 4)}), in[0] <= 2, in[0].le(2));
  DTORCH_CASE("gt", ({normal({5, 33})}), in[0] > 0.25, in[0].gt(0.25));
  DTORCH_CASE("ge", ({ids({40}, 4), normal({40})}), in[0] >= in[1], in[0].ge(in[1]));
  DTORCH_CASE("logical_and", ({bools({40}), ids({40}, 2)}), logical_and(in[0], in[1]), in[0].logical_and(in[1]));
  DTORCH_CASE("logical_or", ({bools({40}), ids({40}, 2)}), logical_or(in[0], in[1]), in[0].logical_or(in[1]));
  DTORCH_CASE("logical_not", ({ids({40}, 2)}), logical_not(in[0]), in[0].logical_not());
}

void add_products_and_reductions(LibTorchCases& cases) {
  DTORCH_CASE("matmul", ({normal({17, 33}), normal({33, 9})}), matmul(in[0], in[1]), in[0].matmul(in[1]));
  DTORCH_CASE("matmul", ({normal({2, 3, 5, 7}), normal({3, 7, 4})}), matmul(in[0], in[1]), in[0].matmul(in[1]));
  DTORCH_CASE("matmul", ({normal({33}), normal({33})}), matmul(in[0], in[1]), in[0].matmul(in[1]));
  DTORCH_CASE("linear", ({normal({3, 5, 33}), normal({9, 33}), normal({9})}), linear(in[0], in[1], in[2]),
              at::linear(in[0], in[1], in[2]));
  DTORCH_CASE("linear", ({normal({5, 33}), normal({9, 33})}), linear(in[0], in[1]), at::linear(in[0], in[1]));
  DTORCH_CASE("einsum", ({normal({3, 5, 4}), normal({6, 2, 4})}), einsum("btd,hkd->bhtk", in[0], in[1]),
              at::einsum("btd,hkd->bhtk", {in[0], in[1]}));
  DTORCH_CASE("sum", ({normal({5, 33})}), sum(in[0]), in[0].sum());
  DTORCH_CASE("sum", ({normal({5, 3, 33})}), sum(in[0], {0, 2}, true), in[0].sum(at::IntArrayRef{0, 2}, true));
  DTORCH_CASE("mean", ({normal({5, 33})}), mean(in[0]), in[0].mean());
  DTORCH_CASE("mean", ({normal({5, 3, 33})}), mean(in[0], {1}), in[0].mean(1));
  DTORCH_CASE("amax", ({distinct({5, 33})}), amax(in[0], {1}), in[0].amax(1));
  DTORCH_CASE("amin", ({distinct({5, 33})}), amin(in[0], {0}, true), in[0].amin(0, true));
  DTORCH_CASE("argmax", ({distinct({5, 33})}), argmax(in[0], 1), in[0].argmax(1));
  DTORCH_CASE("argmax", ({distinct({5, 33})}), argmin(in[0]), in[0].argmin());
  cases.add(
      "max", {distinct({5, 33})},
      [](const Ours& in) {
        auto [values, indices] = max(in[0], 1);
        return Ours{values, indices};
      },
      [](const Theirs& in) {
        auto [values, indices] = in[0].max(1);
        return Theirs{values, indices};
      });
}

void add_shapes(LibTorchCases& cases) {
  DTORCH_CASE("reshape", ({normal({4, 6})}), reshape(in[0], {3, -1}), in[0].reshape({3, -1}));
  DTORCH_CASE("permute", ({normal({4, 6, 2})}), permute(in[0], {2, 0, 1}), in[0].permute({2, 0, 1}));
  DTORCH_CASE("unsqueeze", ({normal({4, 6})}), unsqueeze(in[0], -1), in[0].unsqueeze(-1));
  DTORCH_CASE("squeeze", ({normal({4, 1, 6})}), squeeze(in[0], 1), in[0].squeeze(1));
  DTORCH_CASE("expand", ({normal({4, 1})}), expand(in[0], {2, 4, 3}), in[0].expand({2, 4, 3}));
  DTORCH_CASE("contiguous", ({normal({4, 6})}), contiguous(t(in[0])), in[0].t().contiguous());
  DTORCH_CASE("slice", ({normal({4, 7})}), slice(in[0], 1, 1, 6, 2), in[0].slice(1, 1, 6, 2));
  DTORCH_CASE("cat", ({normal({4, 7}), normal({2, 7})}), cat({in[0], in[1]}, 0), at::cat({in[0], in[1]}, 0));
  cases.add(
      "chunk", {normal({5, 7})}, [](const Ours& in) { return chunk(in[0], 3, 1); },
      [](const Theirs& in) { return in[0].chunk(3, 1); });
  cases.add(
      "split", {normal({5, 7})},
      [](const Ours& in) {
        return split(in[0], {2, 0, 3}, 0);
      },
      [](const Theirs& in) {
        return in[0].split_with_sizes({2, 0, 3}, 0);
      });
}

void add_nn(LibTorchCases& cases) {
  DTORCH_CASE("softmax", ({normal({5, 33})}), softmax(in[0], -1), in[0].softmax(-1));
  DTORCH_CASE("softmax", ({normal({5, 33, 3})}), softmax(in[0], 1), in[0].softmax(1));
  DTORCH_CASE("log_softmax", ({normal({5, 33})}), log_softmax(in[0], -1), in[0].log_softmax(-1));
  DTORCH_CASE("embedding", ({ids({5, 3}, 7), normal({7, 9})}), embedding(in[0], in[1]), at::embedding(in[1], in[0]));
  DTORCH_CASE("layer_norm", ({normal({5, 33}), normal({33}), normal({33})}), layer_norm(in[0], {33}, in[1], in[2]),
              at::layer_norm(in[0], {33}, in[1], in[2]));
  DTORCH_CASE("rms_norm", ({normal({5, 33}), normal({33})}), rms_norm(in[0], in[1], 1e-5),
              at::rms_norm(in[0], at::IntArrayRef{33}, in[1], 1e-5));
  DTORCH_CASE("scaled_dot_product_attention", ({normal({2, 4, 5, 8}), normal({2, 2, 5, 8}), normal({2, 2, 5, 8})}),
              scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true}),
              at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0.0, true, {}, /*enable_gqa=*/true));
  DTORCH_CASE("scaled_dot_product_attention", ({normal({2, 3, 5, 8}), normal({2, 3, 7, 8}), normal({2, 3, 7, 8})}),
              scaled_dot_product_attention(in[0], in[1], in[2], {.scale = 0.7}),
              at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0.0, false, 0.7));
  DTORCH_CASE("cross_entropy", ({normal({15, 9}), ids({15}, 9)}), cross_entropy(in[0], in[1], {.ignore_index = 3}),
              at::cross_entropy_loss(in[0], in[1], {}, /*mean*/ 1, 3));
  DTORCH_CASE("cross_entropy", ({normal({15, 9}), ids({15}, 9)}),
              cross_entropy(in[0], in[1], {.reduction = Reduction::kNone}),
              at::cross_entropy_loss(in[0], in[1], {}, /*none*/ 0));
  DTORCH_CASE("rotary_embedding", ({normal({2, 3, 5, 6})}),
              rotary_embedding(in[0], {.theta = 500, .first_position = 11}), rotated(in[0], 500, 11));
}

}  // namespace

std::vector<LibTorchCase> libtorch_cases() {
  LibTorchCases cases;
  add_elementwise_cases(cases);
  add_reduction_cases(cases);
  add_index_cases(cases);
  add_rearrange_cases(cases);
  add_image_cases(cases);
  add_loss_cases(cases);
  add_moe_cases(cases);
  add_elementwise(cases);
  add_products_and_reductions(cases);
  add_shapes(cases);
  add_nn(cases);
  return cases.take();
}

std::vector<std::pair<std::string, std::string>> without_libtorch_counterpart() {
  return {{"full", "creation: tests/cases and tests/ops/creation_test.cc"},
          {"arange", "creation"},
          {"eye", "creation"},
          {"rand", "counter-based: bits differ from LibTorch's by design"},
          {"randn", "counter-based"},
          {"randint", "counter-based"},
          {"dropout", "counter-based"},
          {"normal", "counter-based"},
          {"normal_of", "counter-based"},
          {"uniform", "counter-based"},
          {"exponential", "counter-based"},
          {"gumbel", "counter-based"},
          {"bernoulli", "counter-based"},
          {"bernoulli_p", "counter-based"},
          {"poisson", "counter-based"},
          {"randperm", "counter-based"},
          {"multinomial", "counter-based"},
          {"categorical", "counter-based"},
          {"add_gumbel", "counter-based"},
          {"gumbel_softmax", "counter-based"},
          {"feature_dropout", "counter-based"},
          {"alpha_dropout", "counter-based"},
          {"from_host", "creation"},
          {"rotary_at", "beside rotary_embedding and the whole sequence: tests/nn/decode_test.cc"},
          {"cache_append", "beside the whole sequence: tests/nn/decode_test.cc"},
          {"cached_attention", "beside the whole sequence: tests/nn/decode_test.cc"},
          {"redistribute", "LibTorch has no meshes"}};
}

}  // namespace dtorch::test
