// Cases of libtorch_cases_aten.h.
#include "tests/ops/libtorch_cases_aten.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/deg2rad.h>
#include <ATen/ops/div.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/frac.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/heaviside.h>
#include <ATen/ops/hypot.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/prelu.h>
#include <ATen/ops/rad2deg.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/selu.h>
#include <ATen/ops/sgn.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/trunc.h>
#include <ATen/ops/xlogy.h>

namespace dtorch::test {
namespace {

SampleInput unit(Shape shape) { return {shape, kFloat32, SampleFill::kUnit}; }
// Without a gradient.
SampleInput constant(SampleInput input) {
  input.differentiable = false;
  return input;
}
Tensor as_tensor(bool value) { return full({}, value, {.dtype = kBool}); }

void add_functions(LibTorchCases& cases) {
  DTORCH_CASE("tan", ({normal({5, 33})}), tan(in[0]), at::tan(in[0]));
  DTORCH_CASE("atan", ({normal({5, 33})}), atan(in[0]), at::atan(in[0]));
  DTORCH_CASE("sinh", ({normal({5, 33})}), sinh(in[0]), at::sinh(in[0]));
  DTORCH_CASE("cosh", ({normal({5, 33})}), cosh(in[0]), at::cosh(in[0]));
  DTORCH_CASE("asinh", ({normal({5, 33})}), asinh(in[0]), at::asinh(in[0]));
  DTORCH_CASE("expm1", ({normal({5, 33})}), expm1(in[0]), at::expm1(in[0]));
  DTORCH_CASE("exp2", ({normal({5, 33})}), exp2(in[0]), at::exp2(in[0]));
  DTORCH_CASE("erfc", ({normal({5, 33})}), erfc(in[0]), at::erfc(in[0]));
  DTORCH_CASE("deg2rad", ({normal({5, 33})}), deg2rad(in[0]), at::deg2rad(in[0]));
  DTORCH_CASE("rad2deg", ({normal({5, 33})}), rad2deg(in[0]), at::rad2deg(in[0]));
  DTORCH_CASE("trunc", ({normal({5, 33})}), trunc(in[0]), at::trunc(in[0]));
  DTORCH_CASE("frac", ({normal({5, 33})}), frac(in[0]), at::frac(in[0]));
  // LibTorch gives its gradient, 0, as a tensor without data.
  DTORCH_CASE("sgn", ({constant(normal({5, 33}))}), sgn(in[0]), at::sgn(in[0]));
  DTORCH_CASE("isnan", ({normal({5, 33})}), isnan(in[0]), at::isnan(in[0]));
  DTORCH_CASE("isinf", ({normal({5, 33})}), isinf(in[0]), at::isinf(in[0]));
  DTORCH_CASE("isfinite", ({normal({5, 33})}), isfinite(in[0]), at::isfinite(in[0]));
  DTORCH_CASE("nan_to_num", ({normal({5, 33})}), nan_to_num(in[0]), at::nan_to_num(in[0]));
  DTORCH_CASE("asin", ({unit({5, 33})}), asin(in[0]), at::asin(in[0]));
  DTORCH_CASE("acos", ({unit({5, 33})}), acos(in[0]), at::acos(in[0]));
  DTORCH_CASE("atanh", ({unit({5, 33})}), atanh(in[0]), at::atanh(in[0]));
  DTORCH_CASE("erfinv", ({unit({5, 33})}), erfinv(in[0]), at::erfinv(in[0]));
  DTORCH_CASE("log1p", ({positive({5, 33})}), log1p(in[0]), at::log1p(in[0]));
  DTORCH_CASE("log2", ({positive({5, 33})}), log2(in[0]), at::log2(in[0]));
  DTORCH_CASE("log10", ({positive({5, 33})}), log10(in[0]), at::log10(in[0]));
  DTORCH_CASE("acosh", ({positive({5, 33})}), acosh(in[0] + 1), at::acosh(in[0] + 1));
  DTORCH_CASE("deg2rad", ({ids({40}, 9)}), deg2rad(in[0]), at::deg2rad(in[0]));
  DTORCH_CASE("isnan", ({constant(normal({5, 33}))}), isnan(log(in[0])), at::isnan(in[0].log()));
  DTORCH_CASE("isinf", ({constant(normal({5, 33}))}), isinf(log(in[0])), at::isinf(in[0].log()));
  DTORCH_CASE("isfinite", ({constant(normal({5, 33}))}), isfinite(log(in[0])), at::isfinite(in[0].log()));
  DTORCH_CASE("nan_to_num", ({constant(normal({5, 33}))}), nan_to_num(log(in[0]), 0.5, 7, -9),
              at::nan_to_num(in[0].log(), 0.5, 7, -9));
  DTORCH_CASE("isclose", ({constant(normal({5, 33})), constant(normal({33}))}), isclose(in[0], in[1], 0.3, 0.1),
              at::isclose(in[0], in[1], 0.3, 0.1));
  DTORCH_CASE("isclose", ({ids({40}, 9), ids({40}, 9)}), isclose(in[0], in[1], 0.3, 0.1),
              at::isclose(in[0], in[1], 0.3, 0.1));
  DTORCH_CASE("allclose", ({constant(normal({5, 33})), constant(normal({33}))}), as_tensor(allclose(in[0], in[1])),
              at::isclose(in[0], in[1]).all());
  DTORCH_CASE("allclose", ({constant(normal({5, 33})), constant(normal({33}))}), as_tensor(allclose(in[0], in[0])),
              at::isclose(in[0], in[0]).all());
}

void add_bits(LibTorchCases& cases) {
  DTORCH_CASE("logical_xor", ({bools({40}), ids({40}, 2)}), logical_xor(in[0], in[1]), at::logical_xor(in[0], in[1]));
  DTORCH_CASE("bitwise_not", ({ids({40}, 9)}), bitwise_not(in[0]), at::bitwise_not(in[0]));
  DTORCH_CASE("bitwise_not", ({bools({40})}), bitwise_not(in[0]), at::bitwise_not(in[0]));
  DTORCH_CASE("bitwise_and", ({ids({40}, 99), ids({40}, 99)}), bitwise_and(in[0], in[1]),
              at::bitwise_and(in[0], in[1]));
  DTORCH_CASE("bitwise_and", ({bools({40}), ids({40}, 99)}), bitwise_and(in[0], in[1]), at::bitwise_and(in[0], in[1]));
  DTORCH_CASE("bitwise_and", ({bools({40}), ids({40}, 99)}), bitwise_and(in[1], 6), at::bitwise_and(in[1], 6));
  DTORCH_CASE("bitwise_or", ({ids({40}, 99), ids({40}, 99)}), bitwise_or(in[0], in[1]), at::bitwise_or(in[0], in[1]));
  DTORCH_CASE("bitwise_or", ({bools({40}), ids({40}, 99)}), bitwise_or(in[0], in[1]), at::bitwise_or(in[0], in[1]));
  DTORCH_CASE("bitwise_or", ({bools({40}), ids({40}, 99)}), bitwise_or(in[1], 6), at::bitwise_or(in[1], 6));
  DTORCH_CASE("bitwise_xor", ({ids({40}, 99), ids({40}, 99)}), bitwise_xor(in[0], in[1]),
              at::bitwise_xor(in[0], in[1]));
  DTORCH_CASE("bitwise_xor", ({bools({40}), ids({40}, 99)}), bitwise_xor(in[0], in[1]), at::bitwise_xor(in[0], in[1]));
  DTORCH_CASE("bitwise_xor", ({bools({40}), ids({40}, 99)}), bitwise_xor(in[1], 6), at::bitwise_xor(in[1], 6));
  DTORCH_CASE("bitwise_left_shift", ({ids({40}, 99), ids({40}, 5)}), bitwise_left_shift(in[0], in[1]),
              at::bitwise_left_shift(in[0], in[1]));
  DTORCH_CASE("bitwise_left_shift", ({ids({40}, 99), ids({40}, 5)}), bitwise_left_shift(in[0], 2),
              at::bitwise_left_shift(in[0], 2));
  DTORCH_CASE("bitwise_right_shift", ({ids({40}, 99), ids({40}, 5)}), bitwise_right_shift(in[0], in[1]),
              at::bitwise_right_shift(in[0], in[1]));
  DTORCH_CASE("bitwise_right_shift", ({ids({40}, 99), ids({40}, 5)}), bitwise_right_shift(in[0], 2),
              at::bitwise_right_shift(in[0], 2));
}

void add_arithmetic(LibTorchCases& cases) {
  DTORCH_CASE("add_scaled", ({normal({5, 33}), normal({33})}), add(in[0], in[1], 0.3), at::add(in[0], in[1], 0.3));
  DTORCH_CASE("add_scaled", ({normal({5, 33}), normal({33})}), sub(in[0], in[1], 3), at::sub(in[0], in[1], 3));
  DTORCH_CASE("add_scaled", ({ids({40}, 9), ids({40}, 9)}), sub(in[0], in[1], 3), at::sub(in[0], in[1], 3));
  DTORCH_CASE("rsub", ({normal({5, 33}), normal({33})}), rsub(in[0], in[1], 0.3), at::rsub(in[0], in[1], 0.3));
  DTORCH_CASE("rsub", ({normal({5, 33})}), rsub(in[0], 1.5, 2), at::rsub(in[0], 1.5, 2));
  DTORCH_CASE("floor_divide", ({constant(normal({5, 33})), constant(positive({33}))}), floor_divide(in[0], in[1]),
              at::floor_divide(in[0], in[1]));
  DTORCH_CASE("floor_divide", ({constant(normal({5, 33})), constant(positive({33}))}), floor_divide(in[0], 0.3),
              at::floor_divide(in[0], 0.3));
  DTORCH_CASE("floor_divide", ({normal({5, 33}), positive({33})}), div(in[0], in[1], "floor"),
              at::div(in[0], in[1], "floor"));
  DTORCH_CASE("floor_divide", ({ids({40}, 99)}), floor_divide(in[0] - 50, 7), at::floor_divide(in[0] - 50, 7));
  DTORCH_CASE("trunc_divide", ({normal({5, 33}), positive({33})}), div(in[0], in[1], "trunc"),
              at::div(in[0], in[1], "trunc"));
  DTORCH_CASE("trunc_divide", ({ids({40}, 99)}), div(in[0] - 50, 7, "trunc"), at::div(in[0] - 50, 7, "trunc"));
  DTORCH_CASE("fmod", ({normal({5, 33}), positive({33})}), fmod(in[0], in[1]), at::fmod(in[0], in[1]));
  DTORCH_CASE("fmod", ({normal({5, 33})}), fmod(in[0], -0.7), at::fmod(in[0], -0.7));
  DTORCH_CASE("fmod", ({ids({40}, 99)}), fmod(in[0] - 50, 7), at::fmod(in[0] - 50, 7));
  DTORCH_CASE("remainder", ({normal({5, 33}), positive({33})}), remainder(in[0], in[1]), at::remainder(in[0], in[1]));
  DTORCH_CASE("remainder", ({normal({5, 33})}), remainder(in[0], -0.7), at::remainder(in[0], -0.7));
  DTORCH_CASE("remainder", ({ids({40}, 99)}), remainder(in[0] - 50, 7), at::remainder(in[0] - 50, 7));
  DTORCH_CASE("remainder", ({positive({5, 33})}), remainder(-2.5, in[0]),
              at::remainder(at::full_like(in[0], -2.5), in[0]));
  DTORCH_CASE("atan2", ({normal({5, 33}), normal({33})}), atan2(in[0], in[1]), at::atan2(in[0], in[1]));
  DTORCH_CASE("hypot", ({normal({5, 33}), normal({33})}), hypot(in[0], in[1]), at::hypot(in[0], in[1]));
  DTORCH_CASE("logaddexp", ({normal({5, 33}), normal({33})}), logaddexp(in[0], in[1]), at::logaddexp(in[0], in[1]));
  DTORCH_CASE("fmax", ({normal({5, 33}), normal({33})}), fmax(in[0], in[1]), at::fmax(in[0], in[1]));
  DTORCH_CASE("fmin", ({normal({5, 33}), normal({33})}), fmin(in[0], in[1]), at::fmin(in[0], in[1]));
  DTORCH_CASE("copysign", ({normal({5, 33}), normal({33})}), copysign(in[0], in[1]), at::copysign(in[0], in[1]));
  DTORCH_CASE("fmax", ({constant(normal({5, 33})), normal({33})}), fmax(log(in[0]), in[1]),
              at::fmax(in[0].log(), in[1]));
  DTORCH_CASE("fmin", ({constant(normal({5, 33})), normal({33})}), fmin(log(in[0]), in[1]),
              at::fmin(in[0].log(), in[1]));
  DTORCH_CASE("atan2", ({ids({40}, 9), ids({40}, 9)}), atan2(in[0], in[1]), at::atan2(in[0], in[1]));
  DTORCH_CASE("copysign", ({normal({5, 33})}), copysign(in[0], -1), at::copysign(in[0], -1));
  DTORCH_CASE("xlogy", ({normal({5, 33}), positive({33})}), xlogy(in[0], in[1]), at::xlogy(in[0], in[1]));
  DTORCH_CASE("xlogy", ({positive({5, 33})}), xlogy(in[0], 0.3), at::xlogy(in[0], 0.3));
  DTORCH_CASE("xlogy", ({positive({5, 33})}), xlogy(2, in[0]), at::xlogy(2, in[0]));
  DTORCH_CASE("heaviside", ({ids({40}, 3), ids({40}, 9)}), heaviside(in[0] - 1, in[1]),
              at::heaviside(in[0] - 1, in[1]));
  DTORCH_CASE("lerp", ({normal({5, 33}), normal({33}), unit({5, 1})}), lerp(in[0], in[1], in[2]),
              at::lerp(in[0], in[1], in[2]));
  DTORCH_CASE("lerp_number", ({normal({5, 33}), normal({33})}), lerp(in[0], in[1], 0.3), at::lerp(in[0], in[1], 0.3));
  DTORCH_CASE("lerp_number", ({normal({5, 33}), normal({33})}), lerp(in[0], in[1], 0.8), at::lerp(in[0], in[1], 0.8));
  DTORCH_CASE("addcmul", ({normal({5, 33}), normal({33}), normal({5, 1})}), addcmul(in[0], in[1], in[2], 0.3),
              at::addcmul(in[0], in[1], in[2], 0.3));
  DTORCH_CASE("addcdiv", ({normal({5, 33}), normal({33}), positive({5, 1})}), addcdiv(in[0], in[1], in[2], 0.3),
              at::addcdiv(in[0], in[1], in[2], 0.3));
  DTORCH_CASE("clamp_tensor", ({normal({5, 33}), normal({5, 33}), normal({33})}), clamp(in[0], in[1], in[2]),
              at::clamp(in[0], in[1], in[2]));
  DTORCH_CASE("clamp_tensor", ({normal({5, 33}), normal({33})}), clamp(in[0], in[1], Tensor()),
              at::clamp(in[0], in[1]));
  DTORCH_CASE("clamp_tensor", ({normal({5, 33}), normal({33})}), clamp(in[0], Tensor(), in[1]),
              at::clamp(in[0], std::optional<at::Tensor>(), in[1]));
  DTORCH_CASE("masked_fill", ({normal({5, 33}), bools({33})}), masked_fill(in[0], in[1], -2.5),
              at::masked_fill(in[0], in[1], -2.5));
  DTORCH_CASE("masked_fill", ({normal({5, 33}), bools({33}), normal({})}), masked_fill(in[0], in[1], in[2]),
              at::masked_fill(in[0], in[1], in[2]));
  DTORCH_CASE("masked_fill", ({bools({5, 33}), bools({33})}), masked_fill(in[0], in[1], true),
              at::masked_fill(in[0], in[1], true));
  DTORCH_CASE("masked_fill", ({ids({40}, 9), bools({40})}), masked_fill(in[0], in[1], -3),
              at::masked_fill(in[0], in[1], -3));
}

void add_activations(LibTorchCases& cases) {
  DTORCH_CASE("selu", ({normal({5, 33})}), selu(in[0]), at::selu(in[0]));
  DTORCH_CASE("relu6", ({normal({5, 33})}), relu6(in[0]), at::relu6(in[0]));
  DTORCH_CASE("hardsigmoid", ({normal({5, 33})}), hardsigmoid(in[0]), at::hardsigmoid(in[0]));
  DTORCH_CASE("hardswish", ({normal({5, 33})}), hardswish(in[0]), at::hardswish(in[0]));
  DTORCH_CASE("mish", ({normal({5, 33})}), mish(in[0]), at::mish(in[0]));
  DTORCH_CASE("softplus", ({normal({5, 33})}), softplus(in[0]), at::softplus(in[0]));
  DTORCH_CASE("softplus", ({normal({5, 33})}), softplus(in[0], 2, 1.5), at::softplus(in[0], 2, 1.5));
  DTORCH_CASE("elu", ({normal({5, 33})}), elu(in[0]), at::elu(in[0]));
  DTORCH_CASE("elu", ({normal({5, 33})}), elu(in[0], 0.7), at::elu(in[0], 0.7));
  DTORCH_CASE("celu", ({normal({5, 33})}), celu(in[0], 0.5), at::celu(in[0], 0.5));
  DTORCH_CASE("leaky_relu", ({normal({5, 33})}), leaky_relu(in[0]), at::leaky_relu(in[0]));
  DTORCH_CASE("leaky_relu", ({normal({5, 33})}), leaky_relu(in[0], -0.3), at::leaky_relu(in[0], -0.3));
  DTORCH_CASE("hardtanh", ({normal({5, 33})}), hardtanh(in[0], -0.5, 0.7), at::hardtanh(in[0], -0.5, 0.7));
  DTORCH_CASE("hardshrink", ({normal({5, 33})}), hardshrink(in[0], 0.6), at::hardshrink(in[0], 0.6));
  DTORCH_CASE("softshrink", ({normal({5, 33})}), softshrink(in[0], 0.6), at::softshrink(in[0], 0.6));
  DTORCH_CASE("threshold", ({normal({5, 33})}), threshold(in[0], 0.2, -1), at::threshold(in[0], 0.2, -1));
  DTORCH_CASE("threshold", ({normal({5, 33})}), threshold(in[0], 0.2, 3), at::threshold(in[0], 0.2, 3));
  DTORCH_CASE("hardtanh", ({ids({40}, 9)}), hardtanh(in[0], 1, 5), at::hardtanh(in[0], 1, 5));
  DTORCH_CASE("prelu", ({normal({5, 33}), normal({33})}), prelu(in[0], in[1]), at::prelu(in[0], in[1]));
  DTORCH_CASE("prelu", ({normal({2, 3, 4, 5}), normal({3})}), prelu(in[0], in[1]), at::prelu(in[0], in[1]));
  DTORCH_CASE("prelu", ({normal({2, 3, 4}), normal({1})}), prelu(in[0], in[1]), at::prelu(in[0], in[1]));
  DTORCH_CASE("logsigmoid", ({normal({5, 33})}), logsigmoid(in[0]), at::log_sigmoid(in[0]));
  DTORCH_CASE("softsign", ({normal({5, 33})}), softsign(in[0]), in[0] / (in[0].abs() + 1));
  DTORCH_CASE("tanhshrink", ({normal({5, 33})}), tanhshrink(in[0]), in[0] - in[0].tanh());
}

}  // namespace

void add_elementwise_cases(LibTorchCases& cases) {
  add_functions(cases);
  add_bits(cases);
  add_arithmetic(cases);
  add_activations(cases);
}

}  // namespace dtorch::test
