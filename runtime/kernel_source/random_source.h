// Device kernels of random values and dropout: by Philox 4x32-10 (ops/create/philox.h) of (seed, call, number of the
// element in the global tensor), so that a device makes its own part, with the bits that a CPU would make. Equal bit
// for bit: uniform, integers, dropout; normal values to the last bits of log, sin and cos. Pure.
#pragma once
#include <string>

#include "mesh/dtype.h"
#include "mesh/shape.h"

namespace dtorch::kernel_source {

// Where a part's elements lie in the global tensor; a parameter of the kernels, as it lies in memory.
struct PartParameter {
  int64_t num_elements = 0;
  int64_t start = 0;                                   // global number of the first element
  int64_t ndim = 0;                                    // dims that lie one after the other are merged
  int64_t size[kMaxDims] = {}, stride[kMaxDims] = {};  // of the part; of the global tensor, in elements
};
// `box`: of this device, in coordinates of the global tensor.
PartParameter part_parameter(const Shape& global_shape, const Box& box);

enum class RandomKind : uint8_t { kUniform, kNormal, kInteger, kDropout };

struct RandomSource {
  std::string name;
  std::string text;  // goes behind prelude() and random_prelude()
};
const std::string& random_prelude();
// Parameters: the result's first element; of kDropout then the input's; PartParameter; seed and call (u64); then
//   kInteger: lowest value (i64), how many values there are (u64);
//   kDropout: limit (u64: an element stays where its word is below), scale (f64).
// A thread takes four elements. Floating dtypes, kInteger any.
RandomSource random_source(RandomKind kind, DType dtype);

}  // namespace dtorch::kernel_source
