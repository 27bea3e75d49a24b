// What one device must give: operators beside LibTorch's own, called through its dispatcher. Only in builds with
// kernels.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch::test {

struct LibTorchCase {
  std::string op;  // the operator's name in the registry
  std::vector<SampleInput> inputs;
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> ours;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> theirs;
  double value_tolerance = 0;  // 0: bit for bit
};
std::vector<LibTorchCase> libtorch_cases();

// Operators with samples that have no counterpart in LibTorch, with the reason.
std::vector<std::pair<std::string, std::string>> without_libtorch_counterpart();

}  // namespace dtorch::test
