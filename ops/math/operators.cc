// The list of the mathematical operators.
#include "ops/math/operators.h"

#include "ops/math/products.h"

namespace dtorch {

extern OperatorDef add_op, sub_op, mul_op, mul_number_op, div_op, div_number_op;
extern OperatorDef neg_op, abs_op, sign_op, floor_op, ceil_op, round_op, square_op, reciprocal_op;
extern OperatorDef exp_op, log_op, sqrt_op, rsqrt_op, sin_op, cos_op, erf_op;
extern OperatorDef relu_op, sigmoid_op, tanh_op, silu_op, gelu_op;
extern OperatorDef relu_gradient_op, sigmoid_gradient_op, tanh_gradient_op, silu_gradient_op, gelu_gradient_op;
extern OperatorDef eq_op, ne_op, lt_op, le_op, gt_op, ge_op, logical_and_op, logical_or_op, logical_not_op;
extern OperatorDef cast_op, where_op, minimum_op, maximum_op, clamp_op, pow_op, pow_number_op;
extern OperatorDef matmul_op, linear_op, contract_leading_op;
extern OperatorDef sum_op, mean_op, amax_op, amin_op, max_dim_op, argmax_op, arg_candidates_op, arg_combine_op,
    scatter_one_op;
extern OperatorDef prod_op, any_op, all_op, aminmax_op, var_op, std_op, var_mean_op, std_mean_op, squared_deviations_op,
    vector_norm_op, dist_op, logsumexp_op, nansum_op, nanmean_op, count_nonzero_op;
extern OperatorDef cumsum_op, cumprod_op, logcumsumexp_op, scan_totals_op, scan_shifted_op, scan_gradient_op, cummax_op,
    cummin_op, extreme_totals_op, extreme_shifted_op, diff_op, scatter_along_op;

namespace {
std::vector<OperatorDef*> basic_operators() {
  return {&add_op,
          &sub_op,
          &mul_op,
          &mul_number_op,
          &div_op,
          &div_number_op,
          &neg_op,
          &abs_op,
          &sign_op,
          &floor_op,
          &ceil_op,
          &round_op,
          &square_op,
          &reciprocal_op,
          &exp_op,
          &log_op,
          &sqrt_op,
          &rsqrt_op,
          &sin_op,
          &cos_op,
          &erf_op,
          &relu_op,
          &sigmoid_op,
          &tanh_op,
          &silu_op,
          &gelu_op,
          &relu_gradient_op,
          &sigmoid_gradient_op,
          &tanh_gradient_op,
          &silu_gradient_op,
          &gelu_gradient_op,
          &eq_op,
          &ne_op,
          &lt_op,
          &le_op,
          &gt_op,
          &ge_op,
          &logical_and_op,
          &logical_or_op,
          &logical_not_op,
          &cast_op,
          &where_op,
          &minimum_op,
          &maximum_op,
          &clamp_op,
          &pow_op,
          &pow_number_op,
          &matmul_op,
          &linear_op,
          &contract_leading_op,
          &sum_op,
          &mean_op,
          &amax_op,
          &amin_op,
          &max_dim_op,
          &argmax_op,
          &arg_candidates_op,
          &arg_combine_op,
          &scatter_one_op,
          &prod_op,
          &any_op,
          &all_op,
          &aminmax_op,
          &var_op,
          &std_op,
          &var_mean_op,
          &std_mean_op,
          &squared_deviations_op,
          &vector_norm_op,
          &dist_op,
          &logsumexp_op,
          &nansum_op,
          &nanmean_op,
          &count_nonzero_op,
          &cumsum_op,
          &cumprod_op,
          &logcumsumexp_op,
          &scan_totals_op,
          &scan_shifted_op,
          &scan_gradient_op,
          &cummax_op,
          &cummin_op,
          &extreme_totals_op,
          &extreme_shifted_op,
          &diff_op,
          &scatter_along_op};
}
}  // namespace

std::vector<OperatorDef*> math_operators() {
  std::vector<OperatorDef*> operators = basic_operators();
  for (OperatorDef* op : math::contraction_operators()) operators.push_back(op);
  return operators;
}

}  // namespace dtorch
