// GraphCore: the client's side of a Graph: operand slots, inference cache, specs, random state and the producer's end
// of the ring. Everything but release() belongs to the Graph's user thread: the first thread that records into it.
#pragma once
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/client/callback_thread.h"
#include "runtime/client/graph.h"
#include "runtime/client/inference.h"
#include "runtime/client/link.h"
#include "runtime/client/slot_list.h"
#include "runtime/client/thread_state.h"

namespace dtorch {

struct RecordContent;

// What all Graphs of one Client share.
struct ClientShared {
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<CallbackThread> callbacks = std::make_shared<CallbackThread>();
  std::atomic<bool> implicit_redistribution{true};
  std::atomic<bool> explain{false};
  std::atomic<bool> check_replicas{false};
};

// Number of a read or of host data (from_host) on its way: unique in this process. Any thread.
uint64_t next_host_data_number();

class GraphCore : public RefCounted {
 public:
  // A program that only drops tensors gives memory back in records of that many releases.
  static constexpr size_t kReleasesInRecord = 1024;

  // Attaches an executor. ring_cells: the credit limit in records' cells, a power of two.
  explicit GraphCore(std::shared_ptr<ClientShared> client, size_t ring_cells = size_t{1} << 14);

  GraphId id() const { return link_->id; }
  ClientShared& client() const { return *client_; }
  GraphLink& link() const { return *link_; }
  InferenceCache& cache() { return cache_; }

  // Throws GraphError on a thread that isn't the user thread or after close(), and the executor's failure when it has
  // ended.
  void check_usable() {
    const bool ended = closed_.load(std::memory_order_relaxed) || link_->failed.load(std::memory_order_acquire);
    if (!on_user_thread() || ended) check_usable_slowly();
  }
  // Throws (and forgets) what a callback has thrown.
  void throw_callback_error() { client_->callbacks->throw_error(); }

  // True on the user thread; makes this thread the user thread of a Graph that has none yet.
  bool belongs_to_this_thread();

  // Appends a call; releases ride along. Blocks while the ring is full.
  void append(const OperatorSpec* spec, std::span<const OperandId> inputs, std::span<const OperandId> outputs,
              std::span<const Scalar> scalars, IntrusivePtr<RecordPayload> payload, const SourceLine& where);
  // As append(), for a call whose record, with what is to be released, is one cell without scalars and payload.
  // operands: inputs, outputs, then zeros. False when it isn't one, or there is no room: append() has to do it.
  bool append_small(const OperatorSpec* spec, const std::array<OperandId, kInlineOperands>& operands, size_t num_inputs,
                    size_t num_outputs, const SourceLine& where) {
    const size_t num_releases = pending_releases_.size();
    size_t at = num_inputs + num_outputs;
    SpscRing<Cell>& ring = link_->ring;
    if (at + num_releases > kInlineOperands || side_waiting_.load(std::memory_order_acquire) || !ring.reserve(1))
      return false;
    RecordCell& head = ring.reserved(0).head;
    for (size_t k = 0; k < kInlineOperands; ++k) head.operands[k] = operands[k];
    for (const OperandId slot : pending_releases_.all()) {
      head.operands[at++] = slot;
      free_slots_.push(slot);  // may be taken again: its release is in the stream
    }
    pending_releases_.clear();
    head.kind = RecordKind::kOperator;
    head.num_scalars = 0;
    head.num_inputs = static_cast<uint16_t>(num_inputs);
    head.num_outputs = static_cast<uint16_t>(num_outputs);
    head.num_releases = static_cast<uint16_t>(num_releases);
    head.line = where.line;
    head.num_cells = 1;
    head.file = where.file;
    head.spec = spec;
    head.payload = nullptr;
    ring.publish(1);
    return true;
  }
  // Ends the current subgraph; doesn't wait. With `barrier`: completed when everything before it is acknowledged.
  void flush(IntrusivePtr<ReadState> barrier = {});
  // Ends the stream and waits for its work; take_failure() tells what failed. The Graph is unusable afterwards.
  // Idempotent.
  void close() noexcept;
  // The first failure that nobody has read, or the executor's own; null when there is none. Each is given once.
  std::exception_ptr take_failure();

  OperandId take_slot() { return free_slots_.empty() ? new_slot() : free_slots_.pop(); }
  // A value's last handle went away. Any thread; never throws.
  void release(OperandId slot) noexcept {
    const bool on_its_thread = on_user_thread() && !closed_.load(std::memory_order_relaxed);
    // Only its thread may look at the list.
    if (on_its_thread && pending_releases_.size() + 1 < kReleasesInRecord) {
      pending_releases_.push(slot);
    } else {
      release_slowly(slot);
    }
  }

  // Seed and number of one random operator's call, for its scalars.
  RandomState next_random_call() { return {random_.seed, random_.next_call++}; }
  const RandomState& random_state() const { return random_; }
  void set_random_state(const RandomState& state) { random_ = state; }
  // For explain(): a number a call, and how many reads there were. Used while calls are noted only.
  uint64_t next_call_number() { return ++call_number_; }
  uint64_t num_reads() const { return num_reads_; }
  void count_read() { ++num_reads_; }
  // Grows along the tape.
  uint64_t next_tape_order() { return ++tape_order_; }

 private:
  void check_usable_slowly();
  OperandId new_slot();
  void release_slowly(OperandId slot) noexcept;
  void write(const RecordContent& content);
  void drain_side_queue();
  void write_releases();
  [[noreturn]] void throw_ended();
  bool on_user_thread() const { return user_thread_.load(std::memory_order_relaxed) == &thread_state; }

  const std::shared_ptr<ClientShared> client_;
  const std::shared_ptr<GraphLink> link_;
  std::atomic<const ThreadState*> user_thread_{nullptr};  // its thread_state, which no other living thread has
  InferenceCache cache_;
  SlotList free_slots_;
  SlotList pending_releases_;  // not recorded yet
  OperandId next_slot_ = 0;
  RandomState random_;
  uint64_t tape_order_ = 0;
  uint64_t call_number_ = 0;
  uint64_t num_reads_ = 0;
  std::atomic<bool> closed_{false};
  bool fatal_seen_ = false;  // take_failure() has given link_->failure

  std::mutex side_mutex_;
  std::vector<OperandId> side_releases_;  // under side_mutex_: dropped by other threads
  std::atomic<bool> side_waiting_{false};
};

// Effective policy of calls on this thread in `graph`: a ConversionScope's, else by set_implicit_redistribution.
inline ConversionPolicy conversion_policy(const GraphCore& graph) {
  if (thread_state.policy != kPolicyOfClient) return thread_state.policy;
  return graph.client().implicit_redistribution.load(std::memory_order_relaxed) ? ConversionPolicy::kLocal
                                                                                : ConversionPolicy::kNone;
}
// The outermost SourceScope's line, else `where`.
inline SourceLine source_line(const Where& where) {
  return thread_state.has_source ? thread_state.source : SourceLine::from(where);
}

}  // namespace dtorch
