// The list of the operators of this room.
#include "ops/index/operators.h"

namespace dtorch {

extern OperatorDef sort_op, argsort_op, msort_op, topk_op, topk_of_candidates_op, kthvalue_op;
extern OperatorDef searchsorted_op, bucketize_op, bincount_op, histc_op;

std::vector<OperatorDef*> index_operators() {
  return {
      &gather_op,
      &take_along_dim_op,
      &scatter_op,
      &scatter_add_op,
      &scatter_reduce_op,
      &index_op,
      &index_select_op,
      &take_op,
      &index_put_op,
      &index_add_op,
      &index_copy_op,
      &index_fill_op,
      &put_op,
      &nonzero_op,
      &argwhere_op,
      &masked_select_op,
      &masked_scatter_op,
      &masked_scatter_grad_op,
      &slice_scatter_op,
      &select_scatter_op,
      &diagonal_scatter_op,
      &one_hot_op,
      &isin_op,
      &triangle_indices_op,
      &tril_indices_op,
      &triu_indices_op,
      &sort_op,
      &argsort_op,
      &msort_op,
      &topk_op,
      &topk_of_candidates_op,
      &kthvalue_op,
      &searchsorted_op,
      &bucketize_op,
      &bincount_op,
      &histc_op,
  };
}

}  // namespace dtorch
