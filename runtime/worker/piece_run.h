// PieceRun: a piece under way on this node, and its transfers. One object for all streams of the node, handed over once
// a stream; the last part to finish acknowledges the piece and frees it.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/worker/blob.h"
#include "runtime/worker/device_move.h"
#include "runtime/worker/lowered_spec.h"
#include "runtime/worker/template_plan.h"

namespace dtorch {

class KernelStream;
struct PieceRun;

// What the streams of this node's source devices hand to a move, each once.
class MoveSources {
 public:
  static constexpr size_t kMaxInputs = 2;
  struct Source {
    std::array<NativeTensor, kMaxInputs> values;
    PoisonPtr poison;
    std::string error() const { return poison ? poison->message : std::string(); }
  };
  // `task`, whose sources these are, is woken by the last stream.
  MoveSources(const std::vector<int64_t>& devices, CommThread& comm, CommTask& task)
      : devices_(devices),
        comm_(comm),
        task_(task),
        sources_(devices.size()),
        provided_(devices.size()),
        missing_(static_cast<int64_t>(devices.size())) {}
  // By the stream of a source device: the values of the call's inputs, or a poison.
  void provide(int64_t device, Source source);
  // Devices whose streams haven't been there yet; for a report.
  std::vector<int64_t> awaited() const;
  bool ready() const { return missing_.load(std::memory_order_acquire) == 0; }
  Source& of(int64_t device);  // once ready
  void drop_values();

 private:
  const std::vector<int64_t>& devices_;
  CommThread& comm_;
  CommTask& task_;
  std::vector<Source> sources_;  // parallel to devices_; each written by its stream before it counts missing_ down
  std::vector<std::atomic<bool>> provided_;  // by any thread, parallel to devices_
  std::atomic<int64_t> missing_;
};

// A redistribution through the data plane: gets its sources from the streams of this node's source devices, delivers to
// the Arrivals of its destination devices. Part of its PieceRun, which it finishes when the comm thread drops it.
class OperandTransfer final : public Transfer {
 public:
  // arrivals: parallel to plan->local_destinations. Sources belong to plan->local_sources.
  OperandTransfer(std::shared_ptr<const NodePlan> plan, uint64_t number, uint32_t op_index,
                  std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run);
  ~OperandTransfer();
  MoveSources& sources() { return sources_; }
  std::optional<TransferStatus> status() const override;

 protected:
  bool sources_ready() override { return sources_.ready(); }
  NativeTensor source(int64_t device) override;
  std::string source_error(int64_t device) override { return sources_.of(device).error(); }
  void deliver(int64_t device, NativeTensor value, const std::string& error) override;
  void failed(int64_t device, const std::string& error) override {
    node_->report(device, place_.sequence, place_.op_index, error);
  }
  void charge(int64_t device, const NativeTensor& value) override;
  HelperThreads* helpers() override { return node_->helpers.get(); }
  bool wants_times() const override { return node_->trace.load(std::memory_order_acquire) != nullptr; }
  void on_stage(const StageTimes& times) override;

 private:
  const std::shared_ptr<const NodePlan> plan_;
  const std::shared_ptr<NodeContext> node_;
  PieceRun* const run_;
  const Place place_;
  const uint64_t number_;
  MoveSources sources_;
  std::vector<IntrusivePtr<Arrival>> arrivals_;
};

// The same for an exchange of ragged rows, whose devices are sources and destinations; two Arrivals each (rows,
// counts).
class OperandExchange final : public RowExchange {
 public:
  // arrivals: two for each of plan->local_devices.
  OperandExchange(std::shared_ptr<const RowExchangePlan> plan, uint64_t number, uint32_t op_index,
                  std::vector<IntrusivePtr<Arrival>> arrivals, PieceRun* run);
  ~OperandExchange();
  MoveSources& sources() { return sources_; }
  std::optional<TransferStatus> status() const override;

 protected:
  bool sources_ready() override { return sources_.ready(); }
  Part source(int64_t device) override;
  void deliver(int64_t device, Part part) override;
  void failed(int64_t device, const std::string& error) override {
    node_->report(device, place_.sequence, place_.op_index, error);
  }
  bool wants_times() const override { return node_->trace.load(std::memory_order_acquire) != nullptr; }
  void on_round(const StageTimes& times) override;

 private:
  const std::shared_ptr<const RowExchangePlan> plan_;
  const std::shared_ptr<NodeContext> node_;
  PieceRun* const run_;
  const Place place_;
  const uint64_t number_;
  MoveSources sources_;
  std::vector<IntrusivePtr<Arrival>> arrivals_;
};

struct PieceRun {
  // An operator whose data moves and in which this node takes part.
  struct Move {
    uint32_t op_index = 0;
    // Dropped by the last local source device that has provided its value; null when there is none.
    IntrusivePtr<CommTask> task;
    MoveSources* sources = nullptr;          // of `task`
    std::shared_ptr<DeviceMove> on_devices;  // instead of both: among devices of this node that run behind the host
    std::atomic<int64_t> providers{0};
    // By local index, one for each output; null where the device isn't a destination.
    std::vector<IntrusivePtr<Arrival>> arrivals;
  };
  struct FeedUse {
    uint32_t op_index = 0;
    SharedBytes bytes;  // freed by the last device that uses it
    std::atomic<int32_t> users{0};
  };

  std::shared_ptr<NodeContext> node;
  Piece piece;                              // without calls when it is a replay
  std::unique_ptr<const ReplayRun> replay;  // null: a piece
  // Instead of both: what every stream does at this place; nobody acknowledges it.
  std::function<void(KernelStream& stream, size_t local_index)> errand;
  size_t graph = 0;                           // dense number of the Graph on this node
  std::vector<const LoweredSpec*> new_specs;  // that streams don't know yet
  size_t num_slots = 0;                       // operands of this piece are below
  std::deque<Move> moves;                     // by op_index
  std::deque<FeedUse> feeds;                  // by op_index
  std::shared_ptr<const void> retired;        // what streams look at of a Graph that this piece closes
  // Of a replay, by local index: the scalars of the template's calls, where compute streams need them later; else none.
  std::vector<std::vector<Scalar>> scalars_of_device;
  std::atomic<int64_t> parts{0};  // streams, transfers and the Sub-Controller itself

  // By a stream whose device is a source of `move`, once.
  static void provide(Move& move, int64_t device, MoveSources::Source source) {
    move.sources->provide(device, std::move(source));
    if (move.providers.fetch_sub(1, std::memory_order_acq_rel) == 1) move.task.reset();
  }
  // Any thread, once a part. `this` may be gone afterwards.
  void finish_part() {
    if (parts.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    std::unique_ptr<PieceRun> self(this);
    if (!errand) node->acks.finish(piece.sequence);
  }
};

}  // namespace dtorch
