// Broadcasting, promotion and plain numbers, with every family of elementwise operators.
#include "tests/layouts/calls.h"

namespace dtorch::test {

std::vector<Sample> elementwise_calls() {
  return {
      call("broadcast both ways", {f64({5, 1}), f64({1, 7})},
           [](const In& in) {
             return Out{in[0] + in[1], in[0] * in[1], in[0] - in[1]};
           }),
      call("broadcast a missing dim", {f64({3, 4, 5}), f64({4, 1})},
           [](const In& in) {
             return Out{in[0] * in[1], maximum(in[0], in[1])};
           }),
      call("broadcast of nothing", {f64({0, 3}), f64({1, 3})}, [](const In& in) { return Out{in[0] + in[1]}; }),
      call("broadcast of one element", {f64({1}), f64({6})}, [](const In& in) { return Out{in[0] / in[1]}; }),
      call("a scalar tensor", {f64({}), f64({5, 2})},
           [](const In& in) {
             return Out{in[0] + in[1], in[1] * in[0]};
           }),
      call("sub of a scalar tensor", {f64({}), f64({5, 2})},
           [](const In& in) {
             return Out{in[0] - in[1], in[1] - in[0]};
           }),
      call("integers and floating", {whole({5, 3}), f32({5, 3})},
           [](const In& in) {
             return Out{in[0] + in[1], in[0] * in[1], in[1] - in[0]};
           }),
      call(
          "float32 and float64", {f32({7}), f64({7})},
          [](const In& in) {
            return Out{in[0] * in[1], in[0] + in[1]};
          },
          1e-5),
      call(
          "halves of two kinds", {of({5, 2}, kFloat16), of({5, 2}, kBFloat16)},
          [](const In& in) {
            return Out{in[0] + in[1], in[0] * in[1]};
          },
          0.02),
      call(
          "half and float32", {of({5, 2}, kBFloat16), f32({2})}, [](const In& in) { return Out{in[0] + in[1]}; }, 0.02),
      call(
          "a half and a float64 scalar tensor", {of({5, 2}, kBFloat16), f64({})},
          [](const In& in) { return Out{in[0] * in[1]}; }, 0.02),
      call("bool and integers", {mask({5, 3}), whole({5, 3})},
           [](const In& in) {
             return Out{in[0] + in[1], in[0] * in[1]};
           }),
      call("bool and bool", {mask({5, 3}), mask({3})},
           [](const In& in) {
             return Out{in[0] + in[1], in[0] * in[1], logical_xor(in[0], in[1]), in[0] == in[1]};
           }),
      call("small integers", {whole({6}, kInt8), whole({6}, kUInt8)},
           [](const In& in) {
             return Out{in[0] + in[1], in[0] - in[1], bitwise_and(in[0], in[1])};
           }),
      call("int32 and int64", {whole({6, 1}, kInt32), whole({3})},
           [](const In& in) {
             return Out{in[0] + in[1], in[0] * in[1], maximum(in[0], in[1])};
           }),
      call("an integer divided", {whole({5, 2}), whole({5, 2}, kInt32)},
           [](const In& in) {
             return Out{in[0] / (in[1] * in[1] + 1), in[0] / 4, 3 / (in[0] * in[0] + 1)};
           }),
      call("rounded division", {whole({7, 2}), whole({7, 2})},
           [](const In& in) {
             const Tensor b = bitwise_or(in[1], 1);
             return Out{floor_divide(in[0], b), div(in[0], b, "trunc"), remainder(in[0], b), fmod(in[0], b)};
           }),
      call("rounded division of floating", {f64({7, 2}), positive({2})},
           [](const In& in) {
             return Out{floor_divide(in[0], in[1]), div(in[0], in[1], "floor"), remainder(in[0], in[1]),
                        fmod(in[0], 0.75)};
           }),
      call("integer plus a floating number", {whole({5})},
           [](const In& in) {
             return Out{in[0] + 1.5, in[0] * 2, 2 - in[0]};
           }),
      call("a scaled addend", {f64({5, 2}), f64({2})},
           [](const In& in) {
             return Out{add(in[0], in[1], 2.5), sub(in[0], in[1], 3), rsub(in[0], in[1], 2)};
           }),
      call("powers", {positive({5, 2}), f64({2})},
           [](const In& in) {
             return Out{pow(in[0], in[1]), pow(in[0], 3), pow(in[0], -0.5), pow(in[0], 0)};
           }),
      call("powers of integers", {whole({5})},
           [](const In& in) {
             return Out{pow(in[0], 2), pow(in[0], 3)};
           }),
      call("comparisons", {f64({5, 3}), whole({3})},
           [](const In& in) {
             return Out{in[0]<in[1], in[0] >= 0.25, 1> in[1], in[1] != 2, ne(in[0], in[1])};
           }),
      call("where of mixed dtypes", {mask({5, 1}), whole({5, 3}), f64({3})},
           [](const In& in) {
             return Out{where(in[0], in[1], in[2]), where(in[0], in[2], 1), where(in[0], 2.5, in[2])};
           }),
      call("where with a condition from the value", {f64({5, 4})},
           [](const In& in) {
             return Out{where(in[0] > 0, in[0], 0.0), where(in[0] > 0, in[0] * 2, -in[0])};
           }),
      call("masked_fill", {f64({5, 4}), mask({1, 4})},
           [](const In& in) {
             return Out{masked_fill(in[0], in[1], 0), masked_fill(in[0], in[1], -1e9)};
           }),
      call("masked_fill with a tensor", {f64({5, 4}), mask({4}), f64({})},
           [](const In& in) { return Out{masked_fill(in[0], in[1], in[2])}; }),
      call("lerp", {f64({5, 2}), f64({5, 2}), f64({2})},
           [](const In& in) {
             return Out{lerp(in[0], in[1], 0.3), lerp(in[0], in[1], in[2])};
           }),
      call("addcmul and addcdiv", {f64({5, 2}), f64({5, 1}), positive({2})},
           [](const In& in) {
             return Out{addcmul(in[0], in[1], in[2], 0.5), addcdiv(in[0], in[1], in[2], -2)};
           }),
      call("clamp", {f64({7, 2}), fixed({2}), fixed({7, 1})},
           [](const In& in) {
             return Out{clamp(in[0], -0.5, {}), clamp(in[0], {}, 0.5), clamp(in[0], in[1], in[2])};
           }),
      call("clamp of integers", {whole({7})}, [](const In& in) { return Out{clamp(in[0], -1, 2)}; }),
      call("extremes with NaN", {f64({7}), f64({7})},
           [](const In& in) {
             const Tensor root = log(in[0]);
             return Out{fmax(root, in[1]), fmin(in[1], root), nan_to_num(root, 1, 2, 3), isnan(root), isfinite(root)};
           }),
      call("activations", {f64({5, 3})},
           [](const In& in) {
             const Tensor& x = in[0];
             return Out{gelu(x, "tanh"),      elu(x, 0.5),           celu(x, 2),   leaky_relu(x, 0.2),
                        hardtanh(x, -0.5, 1), hardswish(x),          mish(x),      softplus(x, 2, 1),
                        softshrink(x, 0.3),   threshold(x, 0.1, -2), tanhshrink(x)};
           }),
      call("prelu of channels", {f64({2, 3, 4}), f64({3})}, [](const In& in) { return Out{prelu(in[0], in[1])}; }),
      call("prelu of one number", {f64({2, 3, 4}), f64({1})}, [](const In& in) { return Out{prelu(in[0], in[1])}; }),
      call("two operands", {positive({5, 2}), positive({2})},
           [](const In& in) {
             return Out{atan2(in[0], in[1]), hypot(in[0], in[1]),        logaddexp(in[0], in[1]),
                        xlogy(in[0], in[1]), copysign(in[0], in[1] - 1), heaviside(in[0] - 1, in[1])};
           }),
      call(
          "casts", {f64({5, 3})},
          [](const In& in) {
            return Out{to(in[0], kFloat32), to(in[0], kBFloat16), to(in[0], kInt32), to(in[0], kBool),
                       to(to(in[0], kFloat16), kFloat64)};
          },
          0.02),
      call("casts of integers", {whole({5, 3})},
           [](const In& in) {
             return Out{to(in[0], kFloat32), to(in[0], kInt8), to(in[0], kBool)};
           }),
      call("bits", {whole({5, 3}), whole({3})},
           [](const In& in) {
             return Out{bitwise_and(in[0], 6),        bitwise_or(in[0], in[1]),
                        bitwise_xor(in[0], in[1]),    bitwise_not(in[0]),
                        bitwise_left_shift(in[0], 3), bitwise_right_shift(in[0], bitwise_and(in[1], 3))};
           }),
      call("the same input twice", {f64({5, 2})},
           [](const In& in) {
             return Out{in[0] * in[0], in[0] + in[0], in[0] / (in[0] * in[0] + 1)};
           }),
      call("a number from the left", {positive({5, 2})},
           [](const In& in) {
             return Out{1 - in[0], 2 / in[0], remainder(3, in[0]), xlogy(2, in[0])};
           }),
  };
}

}  // namespace dtorch::test
