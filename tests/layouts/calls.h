// Calls that the tests of this folder run on every layout against one device: attributes, dtypes and combinations that
// the operators' own samples leave out. One list a family.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch::test {

using In = std::vector<Tensor>;
using Out = std::vector<Tensor>;

// Inputs.
inline SampleInput f64(const Shape& shape) { return {shape, kFloat64}; }
inline SampleInput f32(const Shape& shape) { return {shape, kFloat32}; }
inline SampleInput fixed(const Shape& shape) { return {shape, kFloat64, SampleFill::kNormal, 0, false}; }
inline SampleInput positive(const Shape& shape) { return {shape, kFloat64, SampleFill::kPositive}; }
inline SampleInput unit(const Shape& shape) { return {shape, kFloat64, SampleFill::kUnit, 0, false}; }
inline SampleInput distinct(const Shape& shape) { return {shape, kFloat64, SampleFill::kDistinct}; }
inline SampleInput whole(const Shape& shape, DType dtype = kInt64) { return {shape, dtype}; }
inline SampleInput ids(const Shape& shape, int64_t bound) { return {shape, kInt64, SampleFill::kIndices, bound}; }
inline SampleInput mask(const Shape& shape) { return {shape, kBool, SampleFill::kBool, 0, false}; }
inline SampleInput of(const Shape& shape, DType dtype) { return {shape, dtype}; }

inline Sample call(std::string name, std::vector<SampleInput> inputs, std::function<Out(const In&)> run,
                   double tolerance = 0) {
  return {std::move(name), std::move(inputs), std::move(run), tolerance};
}

std::vector<Sample> elementwise_calls();
std::vector<Sample> pending_calls();
std::vector<Sample> product_calls();
std::vector<Sample> reduction_calls();
std::vector<Sample> running_calls();
std::vector<Sample> shape_calls();
std::vector<Sample> index_calls();
std::vector<Sample> image_calls();
std::vector<Sample> loss_calls();
std::vector<Sample> network_calls();
std::vector<Sample> random_calls();

// A GoogleTest test for each of them.
void register_calls();

}  // namespace dtorch::test
