// Printing of placements.
#include "mesh/placement.h"

#include <ostream>

namespace dtorch {

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAvg:
      return "avg";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
  }
  return "unknown";
}

std::string Placement::str() const {
  switch (kind) {
    case Kind::kReplicate:
      return "Replicate()";
    case Kind::kShard:
      return "Shard(" + std::to_string(dim) + ")";
    case Kind::kPartial:
      return "Partial(" + std::string(name_of(reduce)) + ")";
  }
  return "unknown";
}

std::string Placements::str() const {
  std::string text = "{";
  for (int64_t axis = 0; axis < size(); ++axis) text += (axis == 0 ? "" : ", ") + (*this)[axis].str();
  return text + "}";
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) { return out << placement.str(); }

std::ostream& operator<<(std::ostream& out, const Placements& placements) { return out << placements.str(); }

}  // namespace dtorch
