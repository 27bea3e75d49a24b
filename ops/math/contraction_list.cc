// The list of the products beyond matmul and linear.
#include "ops/math/products.h"

namespace dtorch {

extern OperatorDef mm_op, bmm_op, mv_op, dot_op, vdot_op, inner_op, outer_op, tensordot_op;
extern OperatorDef addmm_op, addmv_op, addbmm_op, baddbmm_op, addr_op, cross_op;
extern OperatorDef multi_dot_op, chain_matmul_op, matrix_power_op, kron_op, cdist_op;

std::vector<OperatorDef*> math::contraction_operators() {
  return {&mm_op,        &bmm_op,          &mv_op,           &dot_op,    &vdot_op,    &inner_op, &outer_op,
          &tensordot_op, &addmm_op,        &addmv_op,        &addbmm_op, &baddbmm_op, &addr_op,  &cross_op,
          &multi_dot_op, &chain_matmul_op, &matrix_power_op, &kron_op,   &cdist_op};
}

}  // namespace dtorch
