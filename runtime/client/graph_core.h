// GraphCore: the client's side of a Graph: operand slots, inference cache, specs, random state and the producer's end
// of the ring. Everything but release() belongs to the Graph's user thread: the first thread that records into it.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/client/callback_thread.h"
#include "runtime/client/graph.h"
#include "runtime/client/inference.h"
#include "runtime/client/link.h"

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
  // Attaches an executor. ring_cells: the credit limit in records' cells, a power of two.
  explicit GraphCore(std::shared_ptr<ClientShared> client, size_t ring_cells = size_t{1} << 14);

  GraphId id() const { return link_->id; }
  ClientShared& client() const { return *client_; }
  GraphLink& link() const { return *link_; }
  InferenceCache& cache() { return cache_; }

  // Throws GraphError on a thread that isn't the user thread or after close(), and the executor's failure when it has
  // ended.
  void check_usable();
  // Throws (and forgets) what a callback has thrown.
  void throw_callback_error() { client_->callbacks->throw_error(); }

  // True on the user thread; makes this thread the user thread of a Graph that has none yet.
  bool belongs_to_this_thread();

  // Appends a call; releases ride along. Blocks while the ring is full.
  void append(const OperatorSpec* spec, std::span<const OperandId> inputs, std::span<const OperandId> outputs,
              std::span<const Scalar> scalars, IntrusivePtr<RecordPayload> payload, const SourceLine& where);
  // Ends the current subgraph; doesn't wait. With `barrier`: completed when everything before it is acknowledged.
  void flush(IntrusivePtr<ReadState> barrier = {});
  // Ends the stream and waits for its work; take_failure() tells what failed. The Graph is unusable afterwards.
  // Idempotent.
  void close() noexcept;
  // The first failure that nobody has read, or the executor's own; null when there is none. Each is given once.
  std::exception_ptr take_failure();

  OperandId take_slot();
  // A value's last handle went away. Any thread; never throws.
  void release(OperandId slot) noexcept;

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
  void write(const RecordContent& content);
  void drain_side_queue();
  void write_releases();
  [[noreturn]] void throw_ended();
  bool on_user_thread() const;

  const std::shared_ptr<ClientShared> client_;
  const std::shared_ptr<GraphLink> link_;
  std::atomic<const void*> user_thread_{nullptr};
  InferenceCache cache_;
  std::vector<OperandId> free_slots_;
  std::vector<OperandId> pending_releases_;  // not recorded yet
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
ConversionPolicy conversion_policy(const GraphCore& graph);
// The outermost SourceScope's line, else `where`.
SourceLine source_line(const Where& where);
// An address that differs between the threads that run now.
const void* this_thread_token();

}  // namespace dtorch
