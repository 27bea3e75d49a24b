// KernelStream: the in-order compute stream of one device: a thread that walks pieces and runs its device's part of
// every operator. It alone owns the device's operand tables, so operators need no lock, no count and no allocation. It
// sleeps when nothing is there to do, and when the next operator needs a value that a transfer hasn't delivered yet.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/worker/piece_run.h"

namespace dtorch {

class KernelStream {
 public:
  // local_index: of the device on this node. The backend outlives the stream.
  KernelStream(std::shared_ptr<NodeContext> node, DeviceBackend& backend, size_t local_index, int64_t device);
  ~KernelStream();  // stop()
  KernelStream(const KernelStream&) = delete;
  KernelStream& operator=(const KernelStream&) = delete;

  // By one thread. The stream finishes one part of the run.
  void push(PieceRun* run);
  // Runs what was pushed (without kernels when the node is aborting), then ends the thread. Idempotent.
  void stop();
  // After NodeContext::aborting was set: a stream that waits for a transfer goes on.
  void wake() { parker_->wake(); }
  const std::shared_ptr<Parker>& parker() const { return parker_; }

 private:
  struct Table {
    std::vector<const LocalSpec*> specs;
    std::vector<Blob> slots;
  };
  struct Call;

  void loop();
  void execute(PieceRun& run) noexcept;
  void walk(PieceRun& run);
  void execute_call(Call& call);
  void run_kernel(Call& call);
  void run_alias(Call& call);
  void run_move(Call& call);
  void run_read(Call& call);
  void check_outputs(const Call& call, std::span<const NativeTensor> outputs) const;

  // Moves the inputs' values out of the table, waiting for transfers. Returns the first poison among them.
  PoisonPtr take_inputs(Call& call);
  void put_back_inputs(Call& call);
  void release_inputs(const Call& call);
  void poison_outputs(const Call& call, const PoisonPtr& poison);
  void settle(Blob& blob, const Call& call, size_t input);
  PoisonPtr fail(const Call& call, const std::exception_ptr& error);
  const std::byte* feed_of(Call& call);
  void done_with_feed(Call& call);
  bool aborting() const { return node_->aborting.load(std::memory_order_relaxed); }

  const std::shared_ptr<NodeContext> node_;
  DeviceBackend& backend_;
  const size_t local_index_;
  const int64_t device_;
  DeviceStatistics& statistics_;
  const std::shared_ptr<Parker> parker_;

  std::atomic<bool> available_{false};
  std::mutex mutex_;
  std::vector<PieceRun*> pushed_;  // under mutex_
  bool stop_ = false;              // under mutex_

  std::vector<Table> tables_;  // the thread's, as all that follows; by PieceRun::graph
  std::vector<NativeTensor> inputs_, outputs_;
  int64_t kernels_run_ = 0;
  bool broken_ = false;  // its table can't be kept any more; reported
  std::thread thread_;
};

}  // namespace dtorch
