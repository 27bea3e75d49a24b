// to(x, dtype). Layouts: same on every dim. Between floating dtypes it is linear up to rounding and increasing, so that
// Partial of every kind passes. Gradient: g in the dtype of x.
#include "ops/def/cast_attrs.h"
#include "ops/math/kernels.h"
#if DTORCH_WITH_KERNELS
#include <ATen/native/Copy.h>
#endif

namespace dtorch {
namespace {

using namespace math;

std::vector<OutputMeta> cast_infer(const InferContext& context) {
  return {{context.shape(0), context.attributes<CastAttrs>().dtype}};
}

Rule cast_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const bool floating = is_floating(context.dtype(0)) && is_floating(outputs[0].dtype);
  // An integer type that is too small wraps around.
  if (!floating) return elementwise(context, outputs, Linear::kNo);
  return monotone_rule<Monotone::kUp, Linear::kInAll>(context, outputs);
}

std::vector<Tensor> cast_gradient(const GradientContext& context) {
  return {to(context.grad_output(0), context.input_meta(0).dtype)};
}

#if DTORCH_WITH_KERNELS
void cast_kernel(KernelContext& context) {
  set_output(context, 0, input(context, 0).to(scalar_type(context.attributes<CastAttrs>().dtype)));
}
void cast_loop(at::TensorIterator& iterator) { at::native::copy_stub(at::kCPU, iterator, false); }
// LibTorch's loop for the narrow floats doesn't use the iterator's pointers, and for float16 it has another way.
std::unique_ptr<PreparedKernel> prepare_cast(const LocalOperator& local) {
  for (DType dtype : {local.spec->inputs[0]->dtype, local.spec->outputs[0]->dtype}) {
    if (dtype == kFloat16 || dtype == kBFloat16) return nullptr;
  }
  return prepare_copy<cast_loop>(local);
}
#endif

std::vector<Sample> cast_samples() {
  return {{.name = "to float64",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{to(in[0], kFloat64)}; },
           .tolerance = 1e-5},
          {.name = "to bfloat16, size 1",
           .inputs = {normal({1, 4})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{to(in[0], kBFloat16)}; },
           .tolerance = 1e-2},
          {.name = "integers to float32",
           .inputs = {integers({4, 2})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{to(in[0], kFloat32)}; }},
          {.name = "to bool, empty", .inputs = {integers({0, 2})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{to(in[0], kBool)};
           }}};
}

}  // namespace

constinit OperatorDef cast_op = {
    .name = "to",
    .signature = "to(x, dtype) -> Tensor",
    .attributes = attribute_codec<CastAttrs>(),
    .infer = cast_infer,
    .rule = cast_rule,
    .kernel = DTORCH_KERNEL(cast_kernel),
    .prepare = DTORCH_KERNEL(prepare_cast),
    .gradient = cast_gradient,
    .samples = cast_samples,
    .linear_in = "x",
    .saved_inputs = 0,
    .elementwise = true,
};

Tensor to(const Tensor& x, DType dtype, Where where) {
  return x.dtype() == dtype ? x : record(cast_op, CastAttrs{dtype}, {&x}, where);
}
Tensor Tensor::to(DType dtype, Where where) const { return dtorch::to(*this, dtype, where); }

}  // namespace dtorch
