// dropout(x, p): zeroes elements with probability p and scales the others by 1 / (1 - p). The mask is a function of
// (seed, call, global element number), so it is the same on any layout; for a given mask linear in x. Gradient: the
// same mask on g. scalars: [seed, call].
#include "ops/create/operators.h"
#include "ops/create/philox.h"
#include "ops/nn/dropout_attrs.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"
#include "runtime/client/draw_scope.h"
#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

using namespace nn_ops;

std::vector<OutputMeta> infer(const InferContext& context) {
  need_floating(context, 0);
  return {{context.shape(0), context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  return rule_of({letters(ndim)}, {letters(ndim)}, {}, {{0}});
}

void kernel(KernelContext& context) {
  const double p = context.attributes<DropoutAttrs>().p;
  // Kept when the element's 32-bit word is below (1 - p) 2^32.
  const auto limit = static_cast<uint64_t>((1 - p) * 4294967296.0);
  const PhiloxCall call{context.scalar(0).bits, context.scalar(1).bits};
  const NativeTensor x = context.input(0).contiguous();
  NativeTensor out = NativeTensor::empty(x.local_shape(), x.dtype());
  visit_dtype(x.dtype(), [&]<class T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const Wide scale = p < 1 ? static_cast<Wide>(1 / (1 - p)) : Wide{0};
    const T* from = reinterpret_cast<const T*>(x.data());
    T* to = reinterpret_cast<T*>(out.data());
    for_each_contiguous_run(
        context.output_meta(0).global_shape, context.output_box(0), [&](int64_t global, int64_t local, int64_t length) {
          call.for_each_word(global, length, [&](int64_t e, uint32_t word) {
            const int64_t at = local + (e - global);
            to[at] = word < limit ? static_cast<T>(static_cast<Wide>(from[at]) * scale) : static_cast<T>(Wide{0});
          });
        });
  });
  context.output(0) = std::move(out);
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const Scalar scalars[] = {context.scalar(0), context.scalar(1)};
  return {record(dropout_op, context.attributes<DropoutAttrs>(), {&context.grad_output(0)}, Where::current(),
                 {.scalars = scalars})};
}

std::vector<Sample> samples() {
  auto call = [](double p) {
    return [p](const std::vector<Tensor>& in) { return std::vector<Tensor>{dropout(in[0], p)}; };
  };
  return {{.name = "uneven", .inputs = {{{5, 7}}}, .call = call(0.3)},
          {.name = "dim of size 1", .inputs = {{{4, 1, 3}, kFloat64}}, .call = call(0.5)}};
}

}  // namespace

constinit OperatorDef dropout_op = {.name = "dropout",
                                    .signature = "dropout(x, p, training) -> Tensor",
                                    .attributes = attribute_codec<DropoutAttrs>(),
                                    .infer = infer,
                                    .rule = rule,
                                    .kernel = kernel,
                                    .gradient = gradient,
                                    .samples = samples,
                                    .linear_in = "x",
                                    .saved_inputs = 0};

Tensor dropout(const Tensor& x, double p, bool training, Where where) {
  if (!(p >= 0 && p <= 1)) throw at_line(UserError("[dropout] p is " + std::to_string(p) + ", allowed 0 to 1"), where);
  if (!training || p == 0) return x;
  const DrawScope draw(x);
  const RandomState random = current_graph().next_random_call();
  const Scalar scalars[] = {{random.seed}, {random.next_call}};
  return record(dropout_op, DropoutAttrs{p}, {&x}, where, {.scalars = scalars});
}

}  // namespace dtorch
