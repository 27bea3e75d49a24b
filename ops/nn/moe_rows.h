// The local steps of expert parallelism, over ragged rows (ops/def/row_exchange.h). Not for users: expert_parallel.cc
// composes them.
#pragma once
#include "ops/def/operator_def.h"

namespace dtorch {

extern OperatorDef moe_dispatch_op, moe_combine_op, moe_experts_rows_op, moe_experts_rows_grad_op;

namespace nn_ops {

struct MoeRowsAttrs {
  int64_t parts = 1;  // of the experts, as split_part cuts them: positions of the axis that splits them
  bool with_gates =
      false;  // a row ends with the gates of its part's experts, and zeros up to those of the largest part
  template <class V>
  void fields(V& v) {
    v("parts", parts);
    v("with_gates", with_gates);
  }
};
// Numbers that the gates of a row take.
int64_t gates_width(int64_t experts, int64_t parts);

}  // namespace nn_ops
}  // namespace dtorch
