#include "tests/errors/diverging_operator.h"

#include <cstring>

namespace dtorch::test {
namespace {

struct DivergeAttrs {
  int64_t device = 0;
  template <class V>
  void fields(V& v) {
    v("device", device);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kNo);
}

void kernel(KernelContext& context) {
  const NativeTensor part = context.input(0).contiguous();
  NativeTensor result = NativeTensor::empty(part.local_shape(), part.dtype());
  if (part.num_bytes() > 0) std::memcpy(result.data(), part.data(), static_cast<size_t>(part.num_bytes()));
  if (context.device() == context.attributes<DivergeAttrs>().device) *reinterpret_cast<float*>(result.data()) += 1;
  context.output(0) = std::move(result);
}

constinit OperatorDef diverge_on_op = {.name = "diverge_on",
                                       .signature = "diverge_on(x, device) -> Tensor",
                                       .attributes = attribute_codec<DivergeAttrs>(),
                                       .infer = infer,
                                       .rule = rule,
                                       .kernel = kernel,
                                       .saved_inputs = 0};

}  // namespace

void register_diverging_operator() { OperatorRegistry::global().add(diverge_on_op); }

Tensor diverge_on(const Tensor& x, int64_t device, Where where) {
  return record(diverge_on_op, DivergeAttrs{device}, {&x}, where);
}

}  // namespace dtorch::test
