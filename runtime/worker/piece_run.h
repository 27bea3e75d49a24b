// PieceRun: a piece under way on this node, and its transfers. One object for all streams of the node, handed over once
// a stream; the last part to finish acknowledges the piece and frees it.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/worker/blob.h"
#include "runtime/worker/lowered_spec.h"

namespace dtorch {

struct PieceRun;

// A redistribution through the data plane: gets its sources from the streams of this node's source devices, delivers to
// the Arrivals of its destination devices. Part of its PieceRun, which it finishes when the comm thread drops it.
class OperandTransfer final : public Transfer {
 public:
  // arrivals: parallel to plan->local_destinations. Sources belong to plan->local_sources.
  OperandTransfer(std::shared_ptr<const NodePlan> plan, uint64_t number, std::vector<IntrusivePtr<Arrival>> arrivals,
                  PieceRun* run);
  ~OperandTransfer();
  // By the stream of a source device, once: its value or its poison.
  void provide(int64_t device, NativeTensor value, PoisonPtr poison);

 protected:
  bool sources_ready() override { return missing_.load(std::memory_order_acquire) == 0; }
  NativeTensor source(int64_t device) override;
  std::string source_error(int64_t device) override;
  void deliver(int64_t device, NativeTensor value, const std::string& error) override;

 private:
  struct Source {
    NativeTensor value;
    PoisonPtr poison;
  };
  Source& source_of(int64_t device);

  const std::shared_ptr<const NodePlan> plan_;
  const std::shared_ptr<NodeContext> node_;
  PieceRun* const run_;
  const Sequence sequence_;
  std::vector<Source>
      sources_;  // parallel to plan_->local_sources; each written by its stream before it counts missing_ down
  std::vector<IntrusivePtr<Arrival>> arrivals_;
  std::atomic<int64_t> missing_;
};

struct PieceRun {
  // An operator whose data moves and in which this node takes part.
  struct Move {
    uint32_t op_index = 0;
    // Dropped by the last local source device that has provided its value; null when there is none.
    IntrusivePtr<OperandTransfer> transfer;
    std::atomic<int64_t> providers{0};
    std::vector<IntrusivePtr<Arrival>> arrivals;  // by local index; null where the device isn't a destination
  };
  struct FeedUse {
    uint32_t op_index = 0;
    SharedBytes bytes;  // freed by the last device that uses it
    std::atomic<int32_t> users{0};
  };

  std::shared_ptr<NodeContext> node;
  Piece piece;
  size_t graph = 0;                           // dense number of the Graph on this node
  std::vector<const LoweredSpec*> new_specs;  // that streams don't know yet
  size_t num_slots = 0;                       // operands of this piece are below
  std::deque<Move> moves;                     // by op_index
  std::deque<FeedUse> feeds;                  // by op_index
  std::atomic<int64_t> parts{0};              // streams, transfers and the Sub-Controller itself

  // By a stream whose device is a source of `move`, once.
  static void provide(Move& move, int64_t device, NativeTensor value, PoisonPtr poison) {
    move.transfer->provide(device, std::move(value), std::move(poison));
    if (move.providers.fetch_sub(1, std::memory_order_acq_rel) == 1) move.transfer.reset();
  }
  // Any thread, once a part. `this` may be gone afterwards.
  void finish_part() {
    if (parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    std::unique_ptr<PieceRun> self(this);
    node->acks.finish(piece.sequence);
  }
};

}  // namespace dtorch
