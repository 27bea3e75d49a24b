// Device kernels of optimizer steps and of folds: AdamW over a list of tensors in one launch
// (ops/nn/optimizer_steps.cc), and the ordered fold of parts (runtime/comm/fold.cc). Equal, bit for bit, to the CPU's.
// Pure.
#pragma once
#include <string>

#include "mesh/dtype.h"
#include "mesh/placement.h"

namespace dtorch::kernel_source {

struct StepSource {
  std::string name;
  std::string text;  // goes behind prelude()
};

// One tensor of a step: first elements (contiguous) and their number. Results may be the inputs.
struct AdamwTensor {
  const void *param = nullptr, *gradient = nullptr, *mean = nullptr, *square = nullptr;
  void *new_param = nullptr, *new_mean = nullptr, *new_square = nullptr;
  int64_t num_elements = 0;
};
// Parameters: AdamwList; beta1, 1 - beta1, beta2, 1 - beta2, eps, keep (1 - lr weight_decay), step size
// (lr / (1 - beta1^step)), root (sqrt(1 - beta2^step)), all f64; then a pointer to the step's number, where only the
// device knows it (0: no step, the results are the inputs), or null, and lr (f64). With a number, step size and root
// are made of it. Row y of the grid takes tensor y of the list.
struct AdamwList {
  static constexpr size_t kMaxTensors = 48;
  AdamwTensor tensors[kMaxTensors];
};
StepSource adamw_source(DType dtype);  // floating

// Parameters: FoldList, the result's first element, elements (i64), divisor (i64; 1: none). Sums in the order of the
// parts, in accumulation_dtype(). kAvg: sum, with a divisor. The result may be a part.
struct FoldList {
  static constexpr size_t kMaxParts = 240;
  int64_t num_parts = 0;  // at least 1
  const void* parts[kMaxParts] = {};
};
// Of a fold of more parts than a list has: its first stage makes sums, which are the first part of the next.
struct FoldStage {
  bool is_first = true;  // else the first part holds sums, of accumulation_dtype()
  bool is_last = true;   // else the result does
};
StepSource fold_source(DType dtype, ReduceOp reduce, FoldStage stage = {});

}  // namespace dtorch::kernel_source
