// An operator that only sleeps and gives its input on: computation that doesn't hang on the machine's cores.
#pragma once
#include <chrono>
#include <thread>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch::bench {

inline constexpr std::chrono::microseconds kDoze{4000};

inline void doze_kernel(KernelContext& context) {
  std::this_thread::sleep_for(kDoze);
  context.output(0) = context.input(0);
}

inline std::vector<OutputMeta> infer_doze(const InferContext& context) {
  return {{context.shape(0), context.dtype(0)}};
}
inline Rule doze_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kInFirst);
}

inline constinit OperatorDef doze_op = {
    .name = "doze",
    .signature = "doze(x) -> Tensor",
    .infer = infer_doze,
    .rule = doze_rule,
    .kernel = doze_kernel,
};

inline Tensor doze(const Tensor& x) { return record(doze_op, NoAttrs{}, {&x}, Where::current()); }

}  // namespace dtorch::bench
