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

using Ours = std::vector<Tensor>;
using Theirs = std::vector<at::Tensor>;

// Two cases of one call, float32 and float64.
class LibTorchCases {
 public:
  void add(const std::string& op, std::vector<SampleInput> inputs, std::function<Ours(const Ours&)> ours,
           std::function<Theirs(const Theirs&)> theirs, double value_tolerance = 0) {
    cases_.push_back({op, inputs, ours, theirs, value_tolerance});
    for (SampleInput& input : inputs) {
      if (input.dtype == kFloat32) input.dtype = kFloat64;
    }
    cases_.push_back({op, inputs, ours, theirs, value_tolerance > 0 ? 1e-13 : 0});
  }
  std::vector<LibTorchCase> take() { return std::move(cases_); }

 private:
  std::vector<LibTorchCase> cases_;
};

inline SampleInput normal(Shape shape) { return {shape, kFloat32, SampleFill::kNormal}; }
inline SampleInput positive(Shape shape) { return {shape, kFloat32, SampleFill::kPositive}; }
inline SampleInput distinct(Shape shape) { return {shape, kFloat32, SampleFill::kDistinct}; }
inline SampleInput ids(Shape shape, int64_t bound) { return {shape, kInt64, SampleFill::kIndices, bound, false}; }
inline SampleInput bools(Shape shape) { return {shape, kBool, SampleFill::kBool, 0, false}; }

// OURS and THEIRS see their inputs as in[0], in[1], ...
#define DTORCH_CASE(op, inputs, OURS, THEIRS)                                         \
  cases.add(                                                                          \
      op, std::vector<SampleInput> inputs, [](const Ours& in) { return Ours{OURS}; }, \
      [](const Theirs& in) { return Theirs{THEIRS}; })
#define DTORCH_CASE_WITHIN(tolerance, op, inputs, OURS, THEIRS)                       \
  cases.add(                                                                          \
      op, std::vector<SampleInput> inputs, [](const Ours& in) { return Ours{OURS}; }, \
      [](const Theirs& in) { return Theirs{THEIRS}; }, tolerance)

// One file each.
void add_elementwise_cases(LibTorchCases& cases);
void add_reduction_cases(LibTorchCases& cases);
void add_index_cases(LibTorchCases& cases);
void add_rearrange_cases(LibTorchCases& cases);
void add_image_cases(LibTorchCases& cases);
void add_loss_cases(LibTorchCases& cases);
void add_moe_cases(LibTorchCases& cases);

// Operators with samples that have no counterpart in LibTorch, with the reason.
std::vector<std::pair<std::string, std::string>> without_libtorch_counterpart();

}  // namespace dtorch::test
