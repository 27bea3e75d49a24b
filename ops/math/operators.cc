// The list of the mathematical operators.
#include "ops/math/operators.h"

namespace dtorch {

extern OperatorDef add_op, sub_op, mul_op, mul_number_op, div_op, div_number_op;
extern OperatorDef neg_op, abs_op, sign_op, floor_op, ceil_op, round_op, square_op, reciprocal_op;
extern OperatorDef exp_op, log_op, sqrt_op, rsqrt_op, sin_op, cos_op, erf_op;
extern OperatorDef relu_op, sigmoid_op, tanh_op, silu_op, gelu_op;
extern OperatorDef relu_gradient_op, sigmoid_gradient_op, tanh_gradient_op, silu_gradient_op, gelu_gradient_op;
extern OperatorDef cast_op, sum_op, mean_op;

std::vector<OperatorDef*> math_operators() {
  return {&add_op, &sub_op, &mul_op, &mul_number_op, &div_op, &div_number_op,
          &neg_op, &abs_op, &sign_op, &floor_op, &ceil_op, &round_op, &square_op, &reciprocal_op,
          &exp_op, &log_op, &sqrt_op, &rsqrt_op, &sin_op, &cos_op, &erf_op,
          &relu_op, &sigmoid_op, &tanh_op, &silu_op, &gelu_op,
          &relu_gradient_op, &sigmoid_gradient_op, &tanh_gradient_op, &silu_gradient_op, &gelu_gradient_op,
          &cast_op, &sum_op, &mean_op};
}

}  // namespace dtorch
