// redistribute(x, layout): the same logical value with another mesh or other placements. Every pair of layouts is
// legal. It has no kernel: the data plane executes a plan (mesh/redistribute_plan.h). Gradient: the gradient with the
// layout of x; pending where x is Partial becomes Replicate.
#include "ops/move/operators.h"

namespace dtorch {
namespace {

std::vector<OutputMeta> redistribute_infer(const InferContext& context) {
  return {{context.shape(0), context.dtype(0)}};
}

std::vector<Tensor> redistribute_gradient(const GradientContext& context) {
  return {context.grad_output(0).redistribute(context.input_meta(0).layout.without_partial())};
}

std::vector<Sample> redistribute_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0].full_tensor()}; };
  return {{.name = "uneven", .inputs = {{{5, 7}, kFloat32}}, .call = call},
          {.name = "size 1", .inputs = {{{1, 3}, kFloat64}}, .call = call},
          {.name = "empty", .inputs = {{{0, 3}, kInt64, SampleFill::kIota, 0, false}}, .call = call}};
}

}  // namespace

constinit OperatorDef redistribute_op = {
    .name = "redistribute",
    .signature = "redistribute(x, mesh, placements) -> Tensor",
    .infer = redistribute_infer,
    .gradient = redistribute_gradient,
    .samples = redistribute_samples,
    .lowering = Lowering::kTransfer,
    .placement_class = PlacementClass::kAnyLayout,
    .linear_in = "x",
    .saved_inputs = 0,
};

}  // namespace dtorch
