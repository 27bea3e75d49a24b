// The metadata of a stretch of a program: OperatorSpec (an operator with its attributes and all operand metadata,
// resolved once), Operator (one call of a spec on numbered operands) and LogicalGraph (calls in order). No tensor data.
//
// Operand numbers are slots: the client gives a free slot to every new value and reuses it after the value's release,
// which is part of the same stream. So a Sub-Controller keeps its values in a flat table.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mesh/layout.h"
#include "runtime/base/error.h"

namespace dtorch {

using GraphId = uint32_t;
using OperandId = uint32_t;  // a slot in its Graph's operand table
using Sequence = uint64_t;   // number of a piece of work, drawn by the sequencer; unique over all Graphs

// 8 bytes that change from call to call and never influence inference: numbers, seeds, read and feed numbers.
struct Scalar {
  uint64_t bits = 0;
  static Scalar of(double value);
  static Scalar of_int(int64_t value);
  double as_double() const;
  int64_t as_int() const;
};

struct OperatorSpec {
  uint32_t id = 0;         // dense, per Graph
  uint16_t op = 0;         // index in the OperatorRegistry
  std::string attributes;  // encoded (ops/def/attributes.h)
  std::vector<const TensorMeta*> inputs;
  std::vector<const TensorMeta*> outputs;
};

// Marks an entry of LogicalGraph::operators that only releases operands (its inputs).
inline constexpr uint32_t kReleaseSpec = 0xFFFFFFFFu;
// Marks an entry whose outputs are the values of its inputs, one each, storage and all. Passes make these.
inline constexpr uint32_t kAliasSpec = 0xFFFFFFFEu;
// Top bit of an input operand: this is the value's last use, its slot is released with it.
inline constexpr OperandId kLastUse = 0x80000000u;
inline constexpr OperandId kMaxOperand = 0x7FFFFFFFu;

struct Operator {
  uint32_t spec = 0;           // OperatorSpec::id, kReleaseSpec or kAliasSpec
  uint32_t first_operand = 0;  // into LogicalGraph::operands: inputs, then outputs
  uint32_t first_scalar = 0;   // into LogicalGraph::scalars
  uint16_t num_inputs = 0;
  uint16_t num_outputs = 0;
  uint16_t num_scalars = 0;
  uint16_t flags = 0;  // stream (compute_streams.h), kFusedWithNext (fused_runs.h), kSentWithNext (transfer_buckets.h)
  // Of an operator, so that `spec` has an OperatorSpec.
  bool is_call() const { return spec < kAliasSpec; }
};
static_assert(sizeof(Operator) == 20);

struct LogicalGraph {
  std::vector<Operator> operators;
  std::vector<OperandId> operands;
  std::vector<Scalar> scalars;
  // Parallel to `operators`; stays on rank 0.
  std::vector<SourceLine> source_lines;

  std::span<OperandId> inputs(const Operator& op) { return {operands.data() + op.first_operand, op.num_inputs}; }
  std::span<const OperandId> inputs(const Operator& op) const {
    return {operands.data() + op.first_operand, op.num_inputs};
  }
  std::span<const OperandId> outputs(const Operator& op) const {
    return {operands.data() + op.first_operand + op.num_inputs, op.num_outputs};
  }
  std::span<const Scalar> scalars_of(const Operator& op) const {
    return {scalars.data() + op.first_scalar, op.num_scalars};
  }
  void clear();
  bool empty() const { return operators.empty(); }
};

}  // namespace dtorch
