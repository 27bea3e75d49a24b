// StreamTask: a call, or a run of fused ones, on its way from the thread that walks a device's pieces to the compute
// stream that runs it (compute_streams.cc). Private to KernelStream's files.
#pragma once
#include <span>
#include <vector>

#include "runtime/worker/fused_run.h"
#include "runtime/worker/piece_run.h"

namespace dtorch {

struct StreamTask {
  struct Input {
    OperandId slot;
    Blob blob;  // a handle of its own; the only one where the task is the last to use the value
  };
  struct Output {
    OperandId slot;
    IntrusivePtr<Arrival> arrival;
  };
  PieceRun* run = nullptr;     // which isn't finished before this task
  bool forgets_graph = false;  // instead of calls: the Graph of `run` is closed
  // As in KernelStream::CallList; all of it lives as long as the run.
  const LogicalGraph* graph = nullptr;
  std::span<const Operator> operators;
  std::vector<const LocalSpec*> specs;
  const Scalar* scalars = nullptr;
  FusedPlans::PlanPtr* plans = nullptr;
  uint32_t first_number = 0;
  size_t next_move = 0, next_feed = 0;
  size_t num_places = 0;  // slots of its operands are below
  std::vector<Input> inputs;
  std::vector<Output> outputs;  // what outlives the task
};

}  // namespace dtorch
