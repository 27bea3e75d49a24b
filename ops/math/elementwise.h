// User-facing elementwise functions beyond the everyday ones of functions.h: trigonometry, rounding, bits, tests of
// floats, activations. Words, argument order, defaults, broadcasting and dtype promotion are PyTorch's. All throw at
// the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// --- one operand; integers give float32
// --------------------------------------------------------------------------------------------------
Tensor tan(const Tensor& x, Where where = Where::current());
Tensor asin(const Tensor& x, Where where = Where::current());
Tensor acos(const Tensor& x, Where where = Where::current());
Tensor atan(const Tensor& x, Where where = Where::current());
Tensor sinh(const Tensor& x, Where where = Where::current());
Tensor cosh(const Tensor& x, Where where = Where::current());
Tensor asinh(const Tensor& x, Where where = Where::current());
Tensor acosh(const Tensor& x, Where where = Where::current());
Tensor atanh(const Tensor& x, Where where = Where::current());
Tensor expm1(const Tensor& x, Where where = Where::current());
Tensor exp2(const Tensor& x, Where where = Where::current());
Tensor log1p(const Tensor& x, Where where = Where::current());
Tensor log2(const Tensor& x, Where where = Where::current());
Tensor log10(const Tensor& x, Where where = Where::current());
Tensor erfc(const Tensor& x, Where where = Where::current());
Tensor erfinv(const Tensor& x, Where where = Where::current());
Tensor deg2rad(const Tensor& x, Where where = Where::current());
Tensor rad2deg(const Tensor& x, Where where = Where::current());

Tensor trunc(const Tensor& x, Where where = Where::current());
// x - trunc(x), floating dtypes only.
Tensor frac(const Tensor& x, Where where = Where::current());
// Of real numbers the same as sign.
Tensor sgn(const Tensor& x, Where where = Where::current());

// --- tests of floats, bool results
// -------------------------------------------------------------------------------------------------------
Tensor isnan(const Tensor& x, Where where = Where::current());
Tensor isinf(const Tensor& x, Where where = Where::current());
Tensor isfinite(const Tensor& x, Where where = Where::current());
// |a - b| <= atol + rtol |b|; both of one dtype.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
               Where where = Where::current());
// Whether isclose holds everywhere. Reads: waits for the value.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
              Where where = Where::current());
// NaN becomes `nan`, infinities become posinf and neginf, without them the dtype's largest and lowest number.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                  Where where = Where::current());

// --- bits of integers and bool
// -----------------------------------------------------------------------------------------------------------
Tensor logical_xor(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bitwise_not(const Tensor& x, Where where = Where::current());
Tensor bitwise_and(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bitwise_and(const Tensor& a, Number b, Where where = Where::current());
Tensor bitwise_or(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bitwise_or(const Tensor& a, Number b, Where where = Where::current());
Tensor bitwise_xor(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bitwise_xor(const Tensor& a, Number b, Where where = Where::current());
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bitwise_left_shift(const Tensor& a, Number b, Where where = Where::current());
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bitwise_right_shift(const Tensor& a, Number b, Where where = Where::current());

// --- two and three operands
// --------------------------------------------------------------------------------------------------------------
// a + alpha b, a - alpha b, other - alpha x; alpha is an integer when the result is.
Tensor add(const Tensor& a, const Tensor& b, Number alpha, Where where = Where::current());
Tensor sub(const Tensor& a, const Tensor& b, Number alpha, Where where = Where::current());
Tensor rsub(const Tensor& x, const Tensor& other, Number alpha = 1, Where where = Where::current());
Tensor rsub(const Tensor& x, Number other, Number alpha = 1, Where where = Where::current());
// rounding_mode: "trunc" (towards zero) or "floor"; integers stay integers.
Tensor div(const Tensor& a, const Tensor& b, const std::string& rounding_mode, Where where = Where::current());
Tensor div(const Tensor& a, Number b, const std::string& rounding_mode, Where where = Where::current());
Tensor floor_divide(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor floor_divide(const Tensor& a, Number b, Where where = Where::current());
// Sign of a (fmod) or of b (remainder). Integers by zero fail in the kernel.
Tensor fmod(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor fmod(const Tensor& a, Number b, Where where = Where::current());
Tensor remainder(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor remainder(const Tensor& a, Number b, Where where = Where::current());
Tensor remainder(Number a, const Tensor& b, Where where = Where::current());
Tensor atan2(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor hypot(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor copysign(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor copysign(const Tensor& a, Number b, Where where = Where::current());
// The other operand where one is NaN.
Tensor fmax(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor fmin(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor logaddexp(const Tensor& a, const Tensor& b, Where where = Where::current());
// a log(b), 0 where a is 0.
Tensor xlogy(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor xlogy(const Tensor& a, Number b, Where where = Where::current());
Tensor xlogy(Number a, const Tensor& b, Where where = Where::current());
// 0 below zero, 1 above, `values` at zero; both of one dtype.
Tensor heaviside(const Tensor& x, const Tensor& values, Where where = Where::current());
// start + weight (end - start); all of one floating dtype.
Tensor lerp(const Tensor& start, const Tensor& end, const Tensor& weight, Where where = Where::current());
Tensor lerp(const Tensor& start, const Tensor& end, double weight, Where where = Where::current());
// x + value a b, x + value a / b.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Number value = 1, Where where = Where::current());
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Number value = 1, Where where = Where::current());
// At least one bound; an undefined Tensor is none.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max, Where where = Where::current());
// value has no dims; x keeps its dtype.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value, Where where = Where::current());

// --- activations
// -------------------------------------------------------------------------------------------------------------------------
// log(1 + exp(beta x)) / beta; x itself where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20, Where where = Where::current());
Tensor elu(const Tensor& x, double alpha = 1, Where where = Where::current());
Tensor selu(const Tensor& x, Where where = Where::current());
Tensor celu(const Tensor& x, double alpha = 1, Where where = Where::current());
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01, Where where = Where::current());
// weight: [C] with C = x.size(1), or one number for all.
Tensor prelu(const Tensor& x, const Tensor& weight, Where where = Where::current());
Tensor hardtanh(const Tensor& x, double min_val = -1, double max_val = 1, Where where = Where::current());
Tensor relu6(const Tensor& x, Where where = Where::current());
Tensor hardsigmoid(const Tensor& x, Where where = Where::current());
Tensor hardswish(const Tensor& x, Where where = Where::current());
Tensor mish(const Tensor& x, Where where = Where::current());
Tensor logsigmoid(const Tensor& x, Where where = Where::current());
Tensor softsign(const Tensor& x, Where where = Where::current());
Tensor tanhshrink(const Tensor& x, Where where = Where::current());
Tensor hardshrink(const Tensor& x, double lambd = 0.5, Where where = Where::current());
Tensor softshrink(const Tensor& x, double lambd = 0.5, Where where = Where::current());
// x where x > threshold, else value.
Tensor threshold(const Tensor& x, double threshold, double value, Where where = Where::current());

}  // namespace dtorch
