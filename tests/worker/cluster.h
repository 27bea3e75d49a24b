// A cluster in one process for tests of the worker: Sub-Controllers over the in-process fabric, driven by hand-made
// pieces; the test is the controller. Operators are the test's own.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/comm/comm_thread.h"
#include "runtime/comm/fan_out.h"
#include "runtime/comm/in_process.h"
#include "runtime/graph/templates.h"
#include "runtime/worker/sub_controller.h"

namespace dtorch::testing_worker {

// Operators on int64 tensors, registered on first use.
struct TestOps {
  const OperatorDef* fill;         // () -> x, scalars [value]
  const OperatorDef* iota;         // () -> x, every element is its global row-major number
  const OperatorDef* add;          // (a, b) -> c; takes over a when it may
  const OperatorDef* fail;         // () -> x, throws "boom"
  const OperatorDef* wrong_shape;  // () -> x, one element too many
  const OperatorDef* unset;        // () -> x, sets nothing
  const OperatorDef* note;         // (), scalars [number]: appends (device, number) to notes()
  const OperatorDef* wait;         // () -> x: blocks until gate().open()
  const OperatorDef* from_host;
  const OperatorDef* redistribute;
  const OperatorDef* read;
  const OperatorDef* composition;  // no kernel of its own
};
const TestOps& ops();

// How many times add has taken over its input.
std::atomic<int>& reuses();

struct Notes {
  std::mutex mutex;
  std::map<int64_t, std::vector<int64_t>> by_device;
  std::vector<int64_t> of(int64_t device) {
    std::lock_guard lock(mutex);
    return by_device[device];
  }
};
Notes& notes();

class Gate {
 public:
  void close() { set(false); }
  void open() { set(true); }
  void pass();
  void wait_for_visitor();  // until somebody waits in pass()
 private:
  void set(bool open);
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};
Gate& gate();

const TensorMeta* meta(const DeviceMesh& mesh, const Shape& shape, const Placements& placements, DType dtype = kInt64);

// Writes pieces; knows which specs were sent before.
class PieceWriter {
 public:
  explicit PieceWriter(GraphId graph = 7) : graph_(graph) {}
  PieceWriter& call(const OperatorDef* op, std::vector<std::pair<OperandId, const TensorMeta*>> inputs,
                    std::vector<std::pair<OperandId, const TensorMeta*>> outputs, std::vector<int64_t> scalars = {});
  PieceWriter& release(std::vector<OperandId> operands);
  PieceWriter& alias(OperandId from, OperandId to) {
    add(kAliasSpec, {from}, {to}, {});
    return *this;
  }
  // The last call runs on this compute stream.
  PieceWriter& on(uint16_t stream);
  // The transfers among the last calls are one bucket; the first and the last are of it.
  PieceWriter& together(size_t num_calls);
  // The last calls are one run.
  PieceWriter& fuse(size_t num_calls);
  PieceWriter& closes() {
    piece_.closes_graph = true;
    return *this;
  }
  PieceWriter& urgent() {
    piece_.wants_ack_now = true;
    return *this;
  }
  PieceWriter& statistics() {
    piece_.wants_statistics = piece_.wants_ack_now = true;
    return *this;
  }
  Piece take();
  GraphId graph() const { return graph_; }

 private:
  uint32_t spec_of(const OperatorDef* op, std::vector<const TensorMeta*> inputs,
                   std::vector<const TensorMeta*> outputs);
  void add(uint32_t spec, const std::vector<OperandId>& inputs, const std::vector<OperandId>& outputs,
           const std::vector<int64_t>& scalars);
  const GraphId graph_;
  std::vector<OperatorSpec> known_;
  uint64_t transfers_ = 0;
  Piece piece_;
};

inline OperandId last(OperandId id) { return id | kLastUse; }

class Cluster {
 public:
  // Devices in slots in order of their number. Sends Config. Messages for all go down a tree of this width.
  explicit Cluster(std::vector<int32_t> node_of_device, int32_t fan_out = 8, int32_t compute_streams = 1);
  ~Cluster();  // ends with code 1 when it still runs
  // Nodes end what they have begun and begin anew, without any value.
  void begin_epoch(uint32_t epoch);
  ControlEndpoint& controller() { return fabric_.control(kController); }
  // To every node, or to one. Returns the piece's sequence number.
  Sequence send(PieceWriter& writer);
  // Makes a template of the writer's calls, whose operands are names; and replays one.
  void define(PieceWriter& writer, TemplateId id, uint32_t num_live_ins);
  Sequence replay(Replay replay);
  Sequence send_to(int32_t node, PieceWriter& writer);
  // To every node; through the tree when `nodes` names those that want it.
  void feed(uint64_t number, const std::vector<int64_t>& values, std::vector<int32_t> nodes = {});
  // Handles what arrives until every node has acknowledged the piece.
  void wait_for(Sequence sequence);
  void wait_for(Sequence sequence, int32_t node);
  // Handles messages until `count` errors have arrived.
  void wait_for_errors(size_t count);
  // Elements by global row-major number of what has arrived for a read.
  std::map<int64_t, int64_t> read(uint64_t number, const Shape& global_shape);
  size_t num_boxes(uint64_t number) { return reads_[number].size(); }
  const std::vector<ErrorReport>& errors() const { return errors_; }
  const Ack& last_ack(int32_t node) { return acks_[node].back(); }
  bool acknowledged(int32_t node, Sequence sequence);
  // Of its data plane, so far.
  int64_t messages_sent(size_t node) { return nodes_[node]->comm->transport()->messages_sent(); }
  // Sends Shutdown, waits for every Goodbye and thread; returns the nodes' return codes.
  std::vector<int> end(int exit_code);

 private:
  struct Node {
    std::unique_ptr<CommThread> comm;
    std::unique_ptr<SubController> worker;
    std::thread thread;
    int code = -1;
  };
  void handle_one();
  void send_to_all(Message message);
  InProcessFabric fabric_;
  const FanOut tree_;
  Config config_;
  PieceEncoder encoder_;
  std::vector<std::unique_ptr<Node>> nodes_;
  Sequence next_ = 1;
  std::map<int32_t, std::vector<Ack>> acks_;
  std::vector<ErrorReport> errors_;
  std::map<uint64_t, std::vector<std::pair<Box, SharedBytes>>> reads_;
  int goodbyes_ = 0;
  bool ended_ = false;
};

}  // namespace dtorch::testing_worker
