// Placements: how one mesh axis holds a tensor. Pure values.
#pragma once
#include <iosfwd>
#include <string>

#include "mesh/device_mesh.h"
#include "runtime/base/inline_vector.h"

namespace dtorch {

enum class ReduceOp : uint8_t { kSum, kAvg, kMax, kMin };
inline constexpr ReduceOp kSum = ReduceOp::kSum;
inline constexpr ReduceOp kAvg = ReduceOp::kAvg;
inline constexpr ReduceOp kMax = ReduceOp::kMax;
inline constexpr ReduceOp kMin = ReduceOp::kMin;
const char* name_of(ReduceOp op);

struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial };
  Kind kind = Kind::kReplicate;
  ReduceOp reduce = ReduceOp::kSum;  // of a Partial; kSum otherwise
  int32_t dim = 0;                   // of a Shard; 0 otherwise. Negative until normalised against a tensor

  bool is_replicate() const { return kind == Kind::kReplicate; }
  bool is_shard() const { return kind == Kind::kShard; }
  bool is_shard(int64_t d) const { return kind == Kind::kShard && dim == d; }
  bool is_partial() const { return kind == Kind::kPartial; }
  bool is_partial(ReduceOp op) const { return kind == Kind::kPartial && reduce == op; }
  std::string str() const;  // "Replicate()", "Shard(1)", "Partial(sum)"
  friend bool operator==(const Placement&, const Placement&) = default;
};

inline Placement Replicate() { return {}; }
inline Placement Shard(int64_t dim) { return {Placement::Kind::kShard, ReduceOp::kSum, static_cast<int32_t>(dim)}; }
inline Placement Partial(ReduceOp reduce = ReduceOp::kSum) { return {Placement::Kind::kPartial, reduce, 0}; }

class Placements : public InlineVector<Placement, kMaxAxes> {
 public:
  using InlineVector::InlineVector;
  std::string str() const;  // "{Shard(0), Replicate()}"
};
std::ostream& operator<<(std::ostream& out, const Placement& placement);
std::ostream& operator<<(std::ostream& out, const Placements& placements);

}  // namespace dtorch
