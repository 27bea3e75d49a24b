// A run of elementwise operators as one kernel of one device (runtime/graph/fused_runs.h): what it computes, and what
// runs it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/def/operator_def.h"

namespace dtorch {

// What a run computes: a program over values. Values 0, 1, ... are the inputs, those that follow the members' results.
struct FusedProgram {
  struct Input {
    DType dtype = kFloat32;
    bool is_single = false;  // one element that goes with every element of the others
  };
  struct Member {
    const OperatorDef* def = nullptr;
    const LocalOperator* local = nullptr;  // lives as long as the Graph
    std::vector<uint32_t> inputs;          // values
    uint32_t num_scalars = 0;
  };
  int64_t num_elements = 0;  // of every value that isn't single; contiguous
  std::vector<Input> inputs;
  std::vector<Member> members;
  std::vector<uint32_t> outputs;  // the values that are wanted; ascending, all of members

  uint32_t num_inputs() const { return static_cast<uint32_t>(inputs.size()); }
  const Member& maker(uint32_t value) const { return members[value - num_inputs()]; }
  DType dtype_of(uint32_t value) const {
    return value < num_inputs() ? inputs[value].dtype : maker(value).local->spec->outputs[0]->dtype;
  }
};

// Gives, bit for bit, what the members' kernels give one after the other. Used by the device's stream alone.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  FusedKernel(const FusedKernel&) = delete;
  FusedKernel& operator=(const FusedKernel&) = delete;

  // Inputs whose memory output `k` (of FusedProgram::outputs) may have, if nobody needs them afterwards.
  virtual std::span<const uint32_t> may_overwrite(size_t k) const = 0;
  virtual size_t scratch_bytes() const = 0;
  // The numbers of the members' calls, in order. Throws what a member's kernel would; nothing is written.
  virtual void set_scalars(std::span<const Scalar> scalars) = 0;
  // First elements, parallel to the program's inputs and outputs. scratch: scratch_bytes(), 64-byte aligned.
  virtual void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs, std::byte* scratch) = 0;

 protected:
  FusedKernel() = default;
};

}  // namespace dtorch
