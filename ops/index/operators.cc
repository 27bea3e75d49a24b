// The list of the operators of this room.
#include "ops/index/operators.h"

namespace dtorch {

extern OperatorDef sort_op, argsort_op, msort_op, topk_op, topk_of_candidates_op, kthvalue_op;
extern OperatorDef searchsorted_op, bucketize_op, bincount_op, histc_op;

std::vector<OperatorDef*> index_operators() {
  return {&sort_op,     &argsort_op,      &msort_op,     &topk_op,     &topk_of_candidates_op,
          &kthvalue_op, &searchsorted_op, &bucketize_op, &bincount_op, &histc_op};
}

}  // namespace dtorch
