// A redistribution under way on one node: the executor of a plan over point-to-point messages, copies between devices of this node
// by direct memory. All pieces between two nodes in one stage travel in one message. Folds go in mesh order, in float32 at
// least for half types, so that bits don't depend on which node holds a device.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mesh/redistribute_plan.h"
#include "ops/def/native_tensor.h"
#include "runtime/comm/comm_thread.h"

namespace dtorch {

// A plan evaluated for one node; made once per operator spec and shared by its calls.
struct NodePlan {
  // A box that a local device gets: from one source (copy) or folded from several, in order.
  struct LocalPiece {
    int64_t device = 0;
    Box box;                           // global coordinates
    std::vector<int64_t> sources;
  };
  // A box that goes to or comes from another node, at a byte offset of the message between the two.
  struct RemotePart {
    int64_t source = 0, device = 0;    // device numbers
    Box box;
    size_t offset = 0;
  };
  struct NodeStage {
    Stage stage;
    std::vector<LocalPiece> pieces;                      // for local destination devices
    std::map<int32_t, std::vector<RemotePart>> sends;    // by node
    std::map<int32_t, std::vector<RemotePart>> receives;
    std::map<int32_t, size_t> send_bytes, receive_bytes;
  };
  std::vector<NodeStage> stages;
  std::vector<int64_t> local_sources, local_destinations;  // device numbers
  int32_t node = 0;
};
std::shared_ptr<const NodePlan> lower_plan(const RedistributePlan& plan, const DeviceBinding& binding, int32_t node);

// Folds `parts` (packed, `count` elements of `dtype` each) in order into `result`; parts may be null for the identity.
void fold_parts(std::span<const std::byte* const> parts, int64_t count, DType dtype, ReduceOp reduce, int64_t divisor,
                std::byte* result);
// Fills packed memory with the reduce operator's identity (0, -inf or lowest, inf or max).
void fill_identity(std::byte* packed, int64_t count, DType dtype, ReduceOp reduce);

// State machine. A subclass says when the local sources are there and takes the results.
class Transfer : public CommTask {
 public:
  // number: this transfer's number in the controller's total order; epoch: of the message tags.
  Transfer(std::shared_ptr<const NodePlan> plan, uint32_t epoch, uint64_t number);
  bool poll(Transport& transport) final;

 protected:
  // True when every local source tensor has been computed (or has failed).
  virtual bool sources_ready() = 0;
  // The value of a local source device; empty when it failed (then source_error says why).
  virtual NativeTensor source(int64_t device) = 0;
  virtual std::string source_error(int64_t device) = 0;
  // Called once for each local destination device: a value, or an error (poison: a source of one of its pieces had failed; the
  // message of the other nodes carried the flag and its text). A poisoned node still joins, so that nobody hangs.
  virtual void deliver(int64_t device, NativeTensor value, const std::string& error) = 0;

 private:
  struct State;
  std::shared_ptr<const NodePlan> plan_;
  uint32_t epoch_;
  uint64_t number_;
  std::shared_ptr<State> state_;
};

}  // namespace dtorch
