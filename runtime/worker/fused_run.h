// What a stream does with the runs of elementwise operators that it meets (runtime/graph/fused_runs.h): a plan is made
// when a run is first seen, by what its calls are and how they hang together, whatever the slots. The stream's thread.
#pragma once
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/graph/slot_map.h"
#include "runtime/worker/device_backend.h"
#include "runtime/worker/lowered_spec.h"

namespace dtorch {

// Calls that run as one kernel. Operands are numbered as they lie in the graph, from the first call's first one on.
struct FusedCalls {
  struct Input {
    uint32_t operand = 0;   // where it is read first
    uint32_t call = 0;      // that reads it first
    uint32_t position = 0;  // among that call's inputs
    bool dies = false;
  };
  struct Output {
    uint32_t operand = 0;
    uint32_t call = 0;
  };
  std::vector<Input> inputs;    // parallel to the program's
  std::vector<Output> outputs;  // parallel to the program's
  FusedProgram program;
  std::unique_ptr<FusedKernel> kernel;
};

// A run on one device: stretches of it, in order, each one kernel or calls to be run singly.
struct FusedPlan {
  struct Stretch {
    uint32_t num_calls = 0;
    std::unique_ptr<FusedCalls> fused;  // null: singly
  };
  std::vector<Stretch> stretches;
};

// The calls of a run, as the stream has them.
struct RunOfCalls {
  std::span<const Operator> calls;
  std::span<const OperandId> operands;      // of all of them
  std::span<const LocalSpec* const> specs;  // by call
};

// Who makes the kernels of a device.
struct KernelMaker {
  DeviceBackend& backend;
  DeviceStream* stream = nullptr;  // of a device that runs behind the host
  // That one kernel may use. A loop over a whole tensor is then split where blocks aren't, so that only small tensors
  // are fused.
  int32_t threads = 1;
};

FusedPlan make_fused_plan(const RunOfCalls& run, const KernelMaker& maker);

// The plans of one Graph on one device.
class FusedPlans {
 public:
  using PlanPtr = std::shared_ptr<FusedPlan>;
  PlanPtr find_or_make(const RunOfCalls& run, const KernelMaker& maker);

 private:
  // More than a program has; one whose runs never come again makes room.
  static constexpr size_t kMaxPlans = 4096;
  // What the calls are and which operands are the same.
  using Key = std::vector<uint32_t>;
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  void set_key(const RunOfCalls& run);
  std::unordered_map<Key, PlanPtr, Hash> plans_;
  Key key_;
  SlotMap numbers_;
};

}  // namespace dtorch
