// The list of the rearranging operators.
#include "ops/shape/composed.h"

namespace dtorch {

extern OperatorDef flip_op, fliplr_op, flipud_op, rot90_op, roll_op, tril_op, triu_op, unbind_op;
extern OperatorDef repeat_op, repeat_interleave_op, repeat_gradient_op, tile_op;
extern OperatorDef pad_op, pad_from_op, pad_from_gradient_op, unfold_dim_op, unfold_dim_gradient_op;
extern OperatorDef diagonal_op, diag_embed_op, diag_op, trace_op;
extern OperatorDef movedim_op, swapaxes_op, broadcast_to_op, expand_as_op, view_as_op, reshape_as_op, ravel_op;
extern OperatorDef unflatten_op, atleast_1d_op, atleast_2d_op, atleast_3d_op;
extern OperatorDef tensor_split_op, hsplit_op, vsplit_op, dsplit_op, select_op, narrow_op;
extern OperatorDef stack_op, hstack_op, vstack_op, dstack_op, column_stack_op, block_diag_op, meshgrid_op,
    cartesian_prod_op;

std::vector<OperatorDef*> rearranging_operators() {
  return {&flip_op,
          &fliplr_op,
          &flipud_op,
          &rot90_op,
          &roll_op,
          &tril_op,
          &triu_op,
          &unbind_op,
          &repeat_op,
          &repeat_interleave_op,
          &repeat_gradient_op,
          &tile_op,
          &pad_op,
          &pad_from_op,
          &pad_from_gradient_op,
          &unfold_dim_op,
          &unfold_dim_gradient_op,
          &diagonal_op,
          &diag_embed_op,
          &diag_op,
          &trace_op,
          &movedim_op,
          &swapaxes_op,
          &broadcast_to_op,
          &expand_as_op,
          &view_as_op,
          &reshape_as_op,
          &ravel_op,
          &unflatten_op,
          &atleast_1d_op,
          &atleast_2d_op,
          &atleast_3d_op,
          &tensor_split_op,
          &hsplit_op,
          &vsplit_op,
          &dsplit_op,
          &select_op,
          &narrow_op,
          &stack_op,
          &hstack_op,
          &vstack_op,
          &dstack_op,
          &column_stack_op,
          &block_diag_op,
          &meshgrid_op,
          &cartesian_prod_op};
}

}  // namespace dtorch
