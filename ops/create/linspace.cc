// linspace(start, end, steps) and logspace(start, end, steps, base): LibTorch's numbers. Their last bits depend on its
// vector width and on where a range starts, so every device makes the whole range and takes its part. scalars: [start,
// end, base].
#include "ops/create/distributions.h"
#include "ops/create/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty.h>
#include <ATen/ops/linspace_native.h>
#include <ATen/ops/logspace_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace create;

#if DTORCH_WITH_KERNELS
template <bool kLogarithmic>
void kernel(KernelContext& context) {
  if (!holds_value(context)) {
    bool done = false;
    context.output(0) = make_part(context, &done);
    return;
  }
  const double start = context.scalar(0).as_double(), end = context.scalar(1).as_double();
  const int64_t steps = context.output_meta(0).global_shape[0];
  at::Tensor range = at::empty({steps}, tensor_options(context.output_meta(0).dtype));
  if (kLogarithmic) {
    at::native::logspace_out(start, end, steps, context.scalar(2).as_double(), range);
  } else {
    at::native::linspace_out(start, end, steps, range);
  }
  const Box& box = context.output_box(0);
  set_output(context, 0, range.narrow(0, box.offset[0], box.size[0]).clone());
}
#endif

std::vector<Sample> linspace_samples() {
  auto call = [](int64_t steps, TensorOptions options) {
    return [=](const std::vector<Tensor>&) { return std::vector<Tensor>{linspace(-1.5, 2.0, steps, options)}; };
  };
  return {{.name = "uneven", .inputs = {}, .call = call(7, {})},
          {.name = "one step, float64", .inputs = {}, .call = call(1, {.dtype = kFloat64})},
          {.name = "empty", .inputs = {}, .call = call(0, {})}};
}
std::vector<Sample> logspace_samples() {
  auto call = [](int64_t steps, TensorOptions options) {
    return [=](const std::vector<Tensor>&) { return std::vector<Tensor>{logspace(-1.5, 2.0, steps, 3.0, options)}; };
  };
  return {{.name = "uneven", .inputs = {}, .call = call(7, {})},
          {.name = "one step, float64", .inputs = {}, .call = call(1, {.dtype = kFloat64})}};
}

Tensor record_range(const OperatorDef& op, double start, double end, int64_t steps, double base,
                    const TensorOptions& options, const Where& where) {
  if (steps < 0) {
    throw at_line(
        UserError("[" + std::string(op.name) + "] steps is " + std::to_string(steps) + ", allowed are 0 and more"),
        where);
  }
  const Scalar scalars[] = {Scalar::of(start), Scalar::of(end), Scalar::of(base)};
  return record_created(op, {{steps}, options.dtype}, options.layout(1, where), scalars, options.requires_grad, where);
}

}  // namespace

constinit OperatorDef linspace_op = {.name = "linspace",
                                     .signature = "linspace(start, end, steps, options) -> Tensor",
                                     .attributes = attribute_codec<CreateAttrs>(),
                                     .infer = infer_created,
                                     .kernel = DTORCH_KERNEL(kernel<false>),
                                     .samples = linspace_samples,
                                     .placement_class = PlacementClass::kAnyLayout,
                                     .saved_inputs = 0};
constinit OperatorDef logspace_op = {.name = "logspace",
                                     .signature = "logspace(start, end, steps, base, options) -> Tensor",
                                     .attributes = attribute_codec<CreateAttrs>(),
                                     .infer = infer_created,
                                     .kernel = DTORCH_KERNEL(kernel<true>),
                                     .samples = logspace_samples,
                                     .placement_class = PlacementClass::kAnyLayout,
                                     .saved_inputs = 0};

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options, Where where) {
  return record_range(linspace_op, start, end, steps, 0, options, where);
}
Tensor logspace(double start, double end, int64_t steps, double base, const TensorOptions& options, Where where) {
  return record_range(logspace_op, start, end, steps, base, options, where);
}

}  // namespace dtorch
