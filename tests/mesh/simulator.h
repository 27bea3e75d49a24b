// Tensors held device by device in plain arrays, and the execution of redistribution plans on them. Values are integers
// in doubles, so sums are exact.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mesh/redistribute_plan.h"

namespace dtorch::test {

// Every tuple of placements for a mesh and ndim, each in every order of the axes that share a dim. `partials` says
// which Partial kinds take part.
std::vector<Layout> all_layouts(const DeviceMesh& mesh, int64_t ndim, const std::vector<ReduceOp>& partials);

// Calls f with every coordinate inside `size`, row-major.
template <class F>
void for_each_coordinate(const Shape& size, F&& f) {
  if (size.num_elements() == 0) return;
  Shape at(size.size(), 0);
  while (true) {
    f(at);
    int64_t d = size.size() - 1;
    while (d >= 0 && ++at[d] == size[d]) at[d--] = 0;
    if (d < 0) return;
  }
}

int64_t flat_index(const Shape& at, const Shape& shape);

// A whole tensor.
struct Array {
  Shape shape;
  std::vector<double> data;
  double at(const Shape& coordinate) const { return data[static_cast<size_t>(flat_index(coordinate, shape))]; }
};
Array iota(const Shape& shape);  // 3 e - 7 at row-major element e

// A tensor device by device: the local part of each member of the layout's mesh.
struct Distributed {
  Shape global_shape;
  Layout layout;
  std::map<int64_t, Array> parts;
};

// A distributed tensor whose value is `value`; a Partial is a real reduction of differing parts.
Distributed distribute(const Array& value, const Layout& layout);
// The parts' value: Partial axes reduced, kinds in the order of their first axis. Fails the test where replicas differ.
Array assemble(const Distributed& tensor);
// Runs the stages; fails the test where pieces don't tile a box exactly or a source lacks a piece.
Distributed run_plan(const RedistributePlan& plan, const Distributed& source, const Layout& destination,
                     const DeviceBinding& binding);
// What redistribute must give, worked out element by element.
Distributed expected_redistribute(const Distributed& source, const Layout& destination);

Distributed redistribute(const Distributed& source, const Layout& destination);

bool equal(const Distributed& a, const Distributed& b);

}  // namespace dtorch::test
