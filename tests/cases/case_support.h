// What the cases share. Notation of the tables: R, S(d), P (sum); iota is 0.5 e - 3.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtorch/dtorch.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {

using PlacementCase = KernelTest;
using ScenarioCase = KernelTest;
// Rows that need creation, redistribution and reads only: they run without kernels too.
using LayoutCase = ClusterTest;

inline Placement R() { return Replicate(); }
inline Placement S(int64_t dim) { return Shard(dim); }
inline Placement P() { return Partial(); }

// iota on a mesh of devices 0 .. n-1.
inline Tensor iota_on(const Shape& shape, const Shape& mesh, const Placements& placements) {
  return distribute(iota(shape), cpu_mesh(mesh), placements);
}

// The tensor's placements, and its value device by device; `tolerance` 0 is bit for bit.
inline void expect_tensor(const Tensor& tensor, const Placements& placements, const HostTensor& value,
                          double tolerance = 0) {
  EXPECT_EQ(tensor.placements(), placements);
  EXPECT_EQ(check_tensor(tensor, value, tolerance), "");
}
inline void expect_local_shapes(const Tensor& tensor, const std::vector<Shape>& shapes) {
  EXPECT_EQ(local_shapes(tensor), shapes);
}

// The call on one device, on whole copies of the inputs.
template <class F>
HostTensor on_one_device(F&& call, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> alone;
  for (const Tensor& input : inputs) alone.push_back(from_host(input.to_host()));
  return call(alone).to_host();
}

template <class E = PlacementError, class F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace dtorch::test
