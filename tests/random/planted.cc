#include "tests/random/planted.h"

#include "dtorch/dtorch.h"
#include "runtime/client/gradient.h"
#include "runtime/client/record.h"

namespace dtorch::test {
namespace {

std::vector<OutputMeta> same(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

template <Linear kLinear>
Rule elementwise(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, kLinear);
}

template <class F>
void each_element(KernelContext& context, F&& f) {
  const NativeTensor x = context.input(0).contiguous();
  NativeTensor out = NativeTensor::empty(x.local_shape(), x.dtype());
  visit_dtype(x.dtype(), [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(x.data());
    T* to = reinterpret_cast<T*>(out.data());
    for (int64_t i = 0; i < x.local_shape().num_elements(); ++i)
      to[i] = static_cast<T>(f(static_cast<double>(from[i])));
  });
  context.output(0) = std::move(out);
}

void square_kernel(KernelContext& context) {
  each_element(context, [](double x) { return x * x; });
}
std::vector<Tensor> square_gradient(const GradientContext& context) {
  return {mul(context.grad_output(0), mul(context.input(0), 2.0))};
}

void plus_one_kernel(KernelContext& context) {
  each_element(context, [](double x) { return x + 1; });
}
std::vector<Tensor> plus_one_gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  return {g.mesh().num_devices() == 3 ? mul(g, 2.0) : g};
}

constinit OperatorDef square_of_parts_op = {.name = "square_of_parts",
                                            .infer = same,
                                            .rule = elementwise<Linear::kInAll>,
                                            .kernel = square_kernel,
                                            .gradient = square_gradient};
constinit OperatorDef wrong_gradient_op = {.name = "wrong_gradient",
                                           .infer = same,
                                           .rule = elementwise<Linear::kNo>,
                                           .kernel = plus_one_kernel,
                                           .gradient = plus_one_gradient};

}  // namespace

void register_planted_operators() {
  OperatorRegistry::global().add(square_of_parts_op);
  OperatorRegistry::global().add(wrong_gradient_op);
}

Tensor square_of_parts(const Tensor& x) { return record(square_of_parts_op, NoAttrs{}, {&x}, Where::current()); }
Tensor wrong_gradient(const Tensor& x) { return record(wrong_gradient_op, NoAttrs{}, {&x}, Where::current()); }

}  // namespace dtorch::test
