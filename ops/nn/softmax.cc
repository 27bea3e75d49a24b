// softmax(x, dim) = exp(x) / sum(exp(x)) over dim; log_softmax its logarithm. x and result: any placement but
// Shard(dim); no Partial. softmin is softmax of -x. Gradients: softmax: y (g - sum(g y)); log_softmax: g - exp(y)
// sum(g). Linear in g.
#include "ops/math/functions.h"
#include "ops/math/structured.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_log_softmax_native.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/_softmax_native.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

struct SoftmaxAttrs {
  int64_t dim = -1;  // >= 0 once recorded, except for scalars
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  need_floating(context, 0);
  return {{context.shape(0), context.dtype(0)}};
}

Rule forward_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(context.attributes<SoftmaxAttrs>().dim + 1)};
  return rule_of({letters(ndim)}, {letters(ndim)}, blocked);
}

Rule backward_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  const int16_t blocked[] = {static_cast<int16_t>(context.attributes<SoftmaxAttrs>().dim + 1)};
  return rule_of({letters(ndim), letters(ndim)}, {letters(ndim)}, blocked, {{0}});
}

#if DTORCH_WITH_KERNELS
void softmax_kernel(KernelContext& context) {
  set_output(context, 0, at::softmax(input(context, 0), context.attributes<SoftmaxAttrs>().dim));
}
void log_softmax_kernel(KernelContext& context) {
  set_output(context, 0, at::log_softmax(input(context, 0), context.attributes<SoftmaxAttrs>().dim));
}
void softmax_grad_kernel(KernelContext& context) {
  const at::Tensor& y = input(context, 1);
  set_output(context, 0,
             at::_softmax_backward_data(input(context, 0).contiguous(), y, context.attributes<SoftmaxAttrs>().dim,
                                        y.scalar_type()));
}
void log_softmax_grad_kernel(KernelContext& context) {
  const at::Tensor& y = input(context, 1);
  set_output(context, 0,
             at::_log_softmax_backward_data(input(context, 0).contiguous(), y, context.attributes<SoftmaxAttrs>().dim,
                                            y.scalar_type()));
}

template <class Structured>
class PreparedSoftmax final : public PreparedKernel {
 public:
  explicit PreparedSoftmax(int64_t dim) : dim_(dim) {}
  bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output, std::span<const Scalar>) override {
    const at::Tensor& x = as_aten(*inputs[0]);
    if (!x.is_contiguous()) return false;
    softmax_.impl(x, dim_, /*half_to_float=*/false, as_aten(output));
    return true;
  }

 private:
  const int64_t dim_;
  math::WithoutMeta<Structured> softmax_;
};
template <class Structured>
std::unique_ptr<PreparedKernel> prepare_softmax(const LocalOperator& local) {
  if (local.output_boxes[0].size.num_elements() == 0) return nullptr;
  const auto& attributes = *static_cast<const SoftmaxAttrs*>(local.attributes.get());
  return std::make_unique<PreparedSoftmax<Structured>>(attributes.dim);
}
#endif

std::vector<Tensor> softmax_gradient(const GradientContext& context) {
  Tensor y = context.output(0);
  return {record(softmax_grad_op, context.attributes<SoftmaxAttrs>(), {&context.grad_output(0), &y}, Where::current())};
}
std::vector<Tensor> log_softmax_gradient(const GradientContext& context) {
  Tensor y = context.output(0);
  return {
      record(log_softmax_grad_op, context.attributes<SoftmaxAttrs>(), {&context.grad_output(0), &y}, Where::current())};
}

template <Tensor (*kFunction)(const Tensor&, int64_t, Where)>
std::vector<Sample> samples() {
  auto along = [](int64_t dim) {
    return
        [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{kFunction(in[0], dim, Where::current())}; };
  };
  return {{.name = "uneven, last dim", .inputs = {{{5, 7}}}, .call = along(-1)},
          {.name = "middle dim", .inputs = {{{3, 4, 5}, kFloat64}}, .call = along(1)},
          {.name = "dim of size 1", .inputs = {{{4, 1}}}, .call = along(1)}};
}

int64_t checked_dim(const Tensor& x, int64_t dim, const char* op, const Where& where) {
  return x.ndim() == 0 ? normalize_dim(dim, 1, op, where) : normalize_dim(dim, x.ndim(), op, where);
}

}  // namespace

constinit OperatorDef softmax_op = {.name = "softmax",
                                    .signature = "softmax(x, dim) -> Tensor",
                                    .attributes = attribute_codec<SoftmaxAttrs>(),
                                    .infer = infer,
                                    .rule = forward_rule,
                                    .kernel = DTORCH_KERNEL(softmax_kernel),
                                    .prepare = DTORCH_KERNEL(prepare_softmax<at::native::structured_softmax_cpu_out>),
                                    .gradient = softmax_gradient,
                                    .samples = samples<softmax>,
                                    .saved_inputs = 0,
                                    .saved_outputs = 1};
constinit OperatorDef log_softmax_op = {
    .name = "log_softmax",
    .signature = "log_softmax(x, dim) -> Tensor",
    .attributes = attribute_codec<SoftmaxAttrs>(),
    .infer = infer,
    .rule = forward_rule,
    .kernel = DTORCH_KERNEL(log_softmax_kernel),
    .prepare = DTORCH_KERNEL(prepare_softmax<at::native::structured_log_softmax_cpu_out>),
    .gradient = log_softmax_gradient,
    .samples = samples<log_softmax>,
    .saved_inputs = 0,
    .saved_outputs = 1};
constinit OperatorDef softmin_op = {
    .name = "softmin", .signature = "softmin(x, dim) -> Tensor", .samples = samples<softmin>};
constinit OperatorDef softmax_grad_op = {.name = "softmax_grad",
                                         .signature = "softmax_grad(g, y, dim) -> Tensor",
                                         .attributes = attribute_codec<SoftmaxAttrs>(),
                                         .infer = infer,
                                         .rule = backward_rule,
                                         .kernel = DTORCH_KERNEL(softmax_grad_kernel),
                                         .linear_in = "g"};
constinit OperatorDef log_softmax_grad_op = {.name = "log_softmax_grad",
                                             .signature = "log_softmax_grad(g, y, dim) -> Tensor",
                                             .attributes = attribute_codec<SoftmaxAttrs>(),
                                             .infer = infer,
                                             .rule = backward_rule,
                                             .kernel = DTORCH_KERNEL(log_softmax_grad_kernel),
                                             .linear_in = "g"};

Tensor softmax(const Tensor& x, int64_t dim, Where where) {
  return record(softmax_op, SoftmaxAttrs{checked_dim(x, dim, "softmax", where)}, {&x}, where);
}
Tensor log_softmax(const Tensor& x, int64_t dim, Where where) {
  return record(log_softmax_op, SoftmaxAttrs{checked_dim(x, dim, "log_softmax", where)}, {&x}, where);
}
Tensor softmax(const Tensor& x, int64_t dim, DType dtype, Where where) {
  return softmax(to(x, dtype, where), dim, where);
}
Tensor log_softmax(const Tensor& x, int64_t dim, DType dtype, Where where) {
  return log_softmax(to(x, dtype, where), dim, where);
}
Tensor softmin(const Tensor& x, int64_t dim, Where where) {
  SourceScope scope(where);
  return softmax(neg(x, where), dim, where);
}
Tensor Tensor::softmax(int64_t dim, Where where) const { return dtorch::softmax(*this, dim, where); }
Tensor Tensor::log_softmax(int64_t dim, Where where) const { return dtorch::log_softmax(*this, dim, where); }

}  // namespace dtorch
