#include "runtime/graph/logical_graph.h"

#include <bit>

namespace dtorch {

Scalar Scalar::of(double value) { return {std::bit_cast<uint64_t>(value)}; }
Scalar Scalar::of_int(int64_t value) { return {std::bit_cast<uint64_t>(value)}; }
double Scalar::as_double() const { return std::bit_cast<double>(bits); }
int64_t Scalar::as_int() const { return std::bit_cast<int64_t>(bits); }

void LogicalGraph::clear() {
  operators.clear();
  operands.clear();
  scalars.clear();
  source_lines.clear();
}

}  // namespace dtorch
