// ring_split(x [B, H, T, D]) -> (first, second): the two pieces of this device's block of rows, the first one larger by
// one where their number is odd; so both are split evenly over the blocks, as any layout. Views of x.
// ring_join(first, second) -> x: the other way. Both are local; all three have one layout. For ring_attention.cc.
#include "ops/nn/operators.h"
#include "ops/nn/ring_plan.h"
#include "ops/nn/ring_step.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/cat.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

constexpr int64_t kRows = 2;

std::vector<OutputMeta> split_infer(const InferContext& context) {
  const Shape& x = context.shape(0);
  const int64_t blocks = context.attributes<RingSplitAttrs>().blocks;
  Shape first = x, second = x;
  first[kRows] = 0;
  for (int64_t block = 0; block < blocks; ++block)
    first[kRows] += RingPlan::first_rows(split_part(x[kRows], blocks, block).size);
  second[kRows] = x[kRows] - first[kRows];
  return {{first, context.dtype(0)}, {second, context.dtype(0)}};
}
std::vector<OutputMeta> join_infer(const InferContext& context) {
  Shape x = context.shape(0);
  x[kRows] += context.shape(1)[kRows];
  return {{x, context.dtype(0)}};
}

#if DTORCH_WITH_KERNELS
void split_kernel(KernelContext& context) {
  const at::Tensor& x = input(context, 0);
  const int64_t first = RingPlan::first_rows(x.size(kRows));
  set_output(context, 0, x.narrow(kRows, 0, first));
  set_output(context, 1, x.narrow(kRows, first, x.size(kRows) - first));
}
void join_kernel(KernelContext& context) {
  set_output(context, 0, at::cat({input(context, 0), input(context, 1)}, kRows));
}
#endif

}  // namespace

constinit OperatorDef ring_split_op = {.name = "ring_split",
                                       .signature = "ring_split(x) -> (first, second)",
                                       .attributes = attribute_codec<RingSplitAttrs>(),
                                       .infer = split_infer,
                                       .kernel = DTORCH_KERNEL(split_kernel)};
constinit OperatorDef ring_join_op = {.name = "ring_join",
                                      .signature = "ring_join(first, second) -> Tensor",
                                      .infer = join_infer,
                                      .kernel = DTORCH_KERNEL(join_kernel)};

}  // namespace dtorch
