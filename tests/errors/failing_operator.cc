#include "tests/errors/failing_operator.h"

#include <stdexcept>

namespace dtorch::test {
namespace {

struct FailAttrs {
  int64_t device = 0;
  template <class V>
  void fields(V& v) {
    v("device", device);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kInAll);
}

void kernel(KernelContext& context) {
  if (context.device() == context.attributes<FailAttrs>().device) throw std::runtime_error("deliberate");
  context.output(0) = context.input(0);
}

constinit OperatorDef fail_on_op = {.name = "fail_on",
                                    .signature = "fail_on(x, device) -> Tensor",
                                    .attributes = attribute_codec<FailAttrs>(),
                                    .infer = infer,
                                    .rule = rule,
                                    .kernel = kernel,
                                    .linear_in = "x",
                                    .saved_inputs = 0};

}  // namespace

void register_failing_operator() {
  register_builtin_operators();
  OperatorRegistry::global().add(fail_on_op);
}

Tensor fail_on(const Tensor& x, int64_t device, Where where) {
  return record(fail_on_op, FailAttrs{device}, {&x}, where);
}

}  // namespace dtorch::test
