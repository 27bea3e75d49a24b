// The stream between a Graph's user thread (producer) and its EagerGraphExecutor (consumer): 64-byte cells in a
// preallocated ring. A record is one cell, and continuation cells when operands or scalars don't fit.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/intrusive.h"
#include "runtime/base/spsc_ring.h"
#include "runtime/client/future.h"
#include "runtime/client/host_tensor.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

// kFlush ends the current subgraph; with payload->read (a barrier: it reads nothing) the executor completes it when
// everything before it is acknowledged. kClose is a Graph's last record.
enum class RecordKind : uint8_t { kOperator = 1, kFlush, kClose };

// What a read or from_host record carries besides operands; ownership of one reference passes to the consumer.
struct RecordPayload : RefCounted {
  IntrusivePtr<ReadState> read;  // of a read
  HostTensor feed;               // of a from_host
  virtual ~RecordPayload() = default;
};

// Words of a record in order: inputs, outputs, operands released before this operator; then (8-byte aligned, in the
// following cells) scalars. kInlineOperands of them fit in the first cell.
inline constexpr size_t kInlineOperands = 6;
struct alignas(64) RecordCell {
  RecordKind kind;
  uint8_t num_scalars;
  uint16_t num_inputs;
  uint16_t num_outputs;
  uint16_t num_releases;
  uint32_t line;
  uint32_t num_cells;        // of the whole record, this one included
  const char* file;          // static storage
  const OperatorSpec* spec;  // null for a record that only releases
  RecordPayload* payload;    // null, or one owned reference
  uint32_t operands[kInlineOperands];
};
static_assert(sizeof(RecordCell) == 64);

struct ContinuationCell {
  uint64_t words[8];  // operands packed two a word, then scalars one a word
};
static_assert(sizeof(ContinuationCell) == 64);

union Cell {
  RecordCell head;
  ContinuationCell more;
};

struct GraphLink {
  explicit GraphLink(GraphId graph_id, size_t ring_cells = size_t{1} << 14) : id(graph_id), ring(ring_cells) {}
  const GraphId id;
  SpscRing<Cell> ring;
  std::atomic<bool> failed{false};  // with `failure`; reads are answered with it until kClose
  std::mutex failure_mutex;
  std::exception_ptr failure;  // under failure_mutex
  // The first operator's failure that no read has delivered; set by the executor, taken by the client's synchronize and
  // close. Under failure_mutex.
  std::exception_ptr unread_failure;
};

// What the client needs of the rest of the system. Implemented by runtime/launch over the Main-Controller; methods are
// thread-safe.
struct RuntimeStats {
  int64_t operators = 0, pieces = 0, control_messages = 0, control_bytes = 0;
  int64_t data_messages = 0, data_bytes = 0, kernels_run = 0, reads = 0;
  std::vector<int64_t> bytes_in_use_per_node, peak_bytes_per_node;  // peak: of a node's largest device
};
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const DeviceBinding& binding() const = 0;
  // Starts an executor thread for a Graph; its records are consumed from now on.
  virtual void attach(std::shared_ptr<GraphLink> link) = 0;
  // Waits until the executor of `link` has consumed a kClose record and all its work is acknowledged.
  virtual void detach(GraphLink& link) = 0;
  virtual RuntimeStats stats() = 0;
  // The job was asked to end (SIGTERM, Ctrl-C, SIGUSR1): save and return from the program soon.
  virtual bool stop_requested() const = 0;
  virtual std::string describe_nodes() = 0;  // a line a rank: host, pid, versions, devices
};

}  // namespace dtorch
