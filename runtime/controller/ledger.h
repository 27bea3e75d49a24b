// The ledger: every piece that was sent and isn't acknowledged by all nodes, what failed in it, and the reads that
// wait. Shared by the executors (enter) and the inbox thread (everything that comes back); one mutex, never held while
// a caller's code runs.
//
// Nodes acknowledge for all that are below them in the tree in which messages travel (fan_out.h), so that only its
// first nodes count here. A piece is complete when every node has acknowledged it, and settled when all earlier pieces
// of its Graph are complete too. Only then its reads are delivered. What an error reaches is followed when pieces
// settle, in stream order, on their logical graphs: an operator that failed or reads a tainted operand taints its
// outputs; a release or a new value clears a slot (errors in flight).
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/client/device_memory.h"
#include "runtime/client/link.h"
#include "runtime/client/sight.h"
#include "runtime/controller/credits.h"
#include "runtime/controller/origin_table.h"
#include "runtime/controller/route.h"
#include "runtime/controller/spec_table.h"
#include "runtime/controller/status_report.h"
#include "runtime/controller/template.h"
#include "runtime/controller/trace_book.h"
#include "runtime/graph/messages.h"

namespace dtorch {

// A failure of one operator, and what a read that it reaches throws.
struct Cause {
  Sequence sequence = 0;
  uint32_t op_index = 0;
  int64_t device = 0;
  std::exception_ptr error;
  friend bool operator<(const Cause& a, const Cause& b) {
    return std::pair(a.sequence, a.op_index) < std::pair(b.sequence, b.op_index);
  }
};
using CausePtr = std::shared_ptr<const Cause>;

struct LedgerRead {
  uint64_t number = 0;
  IntrusivePtr<ReadState> state;
};

struct LedgerEntry;

// One Graph, as its executor and the ledger share it.
struct GraphStream {
  explicit GraphStream(std::shared_ptr<GraphLink> graph_link) : link(std::move(graph_link)) {}
  const std::shared_ptr<GraphLink> link;
  SpecTable specs;
  std::atomic<int32_t> pieces_in_flight{0};
  // The executor holds back a piece because enough is in flight: whoever lowers pieces_in_flight wakes it.
  std::atomic<bool> wants_wakeup{false};

  // The ledger's, under its mutex.
  std::deque<LedgerEntry*> unsettled;  // in stream order
  std::unordered_map<OperandId, CausePtr> taint;
  std::vector<CausePtr> unread;  // failures that no read has delivered, in order
  OriginTable origins;
  CausePtr shown;  // the one of them that GraphLink::unread_failure shows, or null
};

// What the ledger keeps of a piece.
struct LedgerEntry {
  GraphStream* stream = nullptr;  // null: it was settled, and is done once more in a recovery
  Sequence sequence = 0;
  LogicalGraph graph;                         // as sent, with source lines; of a replay once somebody asked for it
  std::unique_ptr<const ReplayDraft> replay;  // null: a piece
  int64_t num_operators = 0, num_bytes = 0;   // the credit it holds
  std::vector<LedgerRead> reads;
  std::vector<IntrusivePtr<ReadState>> barriers;
  std::chrono::steady_clock::time_point sent_at;
  std::vector<bool> acknowledged;  // by branch of the tree
  int32_t acks_missing = 0;
  bool is_in_flight = true;  // holds its credit; not when it was complete and has to be done again
  bool settled = false;
  std::map<uint32_t, CausePtr> errors;  // by operator

  const LogicalGraph& calls() {
    if (replay != nullptr && graph.empty()) graph = calls_of(*replay);
    return graph;
  }
};

class ReadChecks;

class Ledger {
 public:
  using Clock = std::chrono::steady_clock;
  // reads: notes what is read; null: nobody wants to know.
  Ledger(const Route& route, Credits& credits, ReadChecks* reads = nullptr);

  void add_stream(GraphStream& stream);
  // The stream has no work in flight (wait_settled).
  void remove_stream(GraphStream& stream);
  // Called in the sequencer's critical section, so that sequences come in order. False when everything has failed:
  // nothing is entered, and the reads have failed.
  bool enter(std::unique_ptr<LedgerEntry> entry);
  void count_template();        // one was defined
  void count_template_break();  // an instance didn't go on as its template
  // Blocks until all work of the stream is settled, or everything has failed.
  void wait_settled(GraphStream& stream);

  // The four below throw RuntimeFault when a node says what can't be.
  void on_ack(Ack ack);
  void on_error(const ErrorReport& report);  // device >= 0
  void on_read_data(const ReadData& data, const SharedBytes& payload);
  void on_heard(int32_t node);

  // The number of the first piece that isn't settled; 0 before the first.
  Sequence first_unsettled() const;
  // By all nodes; a piece that was entered.
  bool is_acknowledged(Sequence sequence) const;
  // Another epoch: all pieces in [first, end) are done, or done again, by the nodes of `route`. What was settled stays
  // settled. What is said of earlier epochs is ignored from now on. No message of a node is being handled meanwhile.
  void restart(const Route& route, Sequence first, Sequence end);

  // Everything fails for good: all Graphs, all reads, all waiters. The first failure wins.
  void fail_all(std::exception_ptr error);
  // Called once, by fail_all() after all that, without the mutex. Before anything is sent.
  void set_on_failure(std::function<void()> on_failure) { on_failure_ = std::move(on_failure); }
  std::exception_ptr failure() const;
  bool has_failed() const { return failed_.load(); }

  // A node that owes acknowledgements, or whose branch of the tree does, and for how long nothing has come of the
  // branch (since it was sent the oldest that it owes, at most). Which node of a branch holds it up isn't known here.
  struct Debt {
    int32_t node = 0;
    Clock::duration quiet{0};
  };
  std::vector<Debt> debts(Clock::time_point now) const;  // in order of node
  // "[add] #12.3: float32 [8] ..., 32 bytes, called at train.cc:7": operator 3 of piece (or replay) 12; "" when it
  // isn't under way.
  std::string describe(const Place& place) const;
  // "[add] called at train.cc:7"; "" as above.
  std::string name_of(const Place& place) const;
  bool is_under_way(const Place& place) const;
  bool is_busy() const;  // something is owed
  // "it owes [add] called at train.cc:7, 2 more after it": the oldest piece that a node or its branch owes; "" when
  // there is none.
  std::string oldest_owed(int32_t node) const;
  // What a device holds, with its `most` largest tensors: one line each.
  std::string describe_memory(const DeviceMemory& memory, size_t most, const TensorNames& names) const;
  const OperatorSpec* spec_of(GraphId graph, uint32_t spec) const;  // null when the Graph has ended
  // Every piece that is entered from now on is noted there. Before the first.
  void set_trace_book(TraceBook* book) { trace_book_ = book; }
  StatusNames status_names() const;  // by the two above; no longer than this lives
  bool reads_outstanding() const { return num_reads_.load() != 0; }
  RuntimeStats stats() const;
  TemplateStats template_stats() const;
  // The devices of the nodes' last acknowledgements.
  void add_device_memory(ClientStats& stats) const;
  void reset_peaks();  // in what the nodes acknowledged last; they are told by somebody else

 private:
  // What to tell readers once the mutex is free.
  struct Delivery {
    IntrusivePtr<ReadState> state;
    std::exception_ptr error;  // null: complete
  };
  using Deliveries = std::vector<Delivery>;
  static void deliver(const Deliveries& deliveries);

  LedgerEntry& in_flight(Sequence sequence, int32_t node, const char* what);
  void acknowledge(LedgerEntry& entry, int32_t node, Deliveries& out);
  void settle(LedgerEntry& entry, Deliveries& out);
  // Of work that was settled before: throws RuntimeFault when the operator hadn't failed then.
  void require_known(const ErrorReport& report) const;
  // Follows taint through the piece; returns the causes that reach its reads, by read number.
  std::unordered_map<uint64_t, CausePtr> follow_taint(LedgerEntry& entry);
  void finish_read(GraphStream& stream, const LedgerRead& read, const CausePtr& cause, Deliveries& out);
  // Keeps GraphLink::unread_failure at the first failure that nobody has seen: a read delivers one (`delivered`), and
  // the client takes away what it throws.
  void refresh_unread(GraphStream& stream, const CausePtr& delivered);
  void fail_stream(GraphStream& stream, Deliveries& out);
  void check_node(int32_t node) const;
  void expect_acks(LedgerEntry& entry) const;  // of all branches
  LedgerEntry* oldest_owed_entry(int32_t branch) const;
  LedgerEntry* under_way(const Place& place) const;   // of the operator; null when it isn't
  const GraphStream* stream_of(GraphId graph) const;  // null when it has ended
  // The slot of a value that a device holds; none when it is a temporary of an instance that isn't under way any more.
  static std::optional<OperandId> slot_of(const GraphStream& stream, const LiveTensor& tensor, const Place& before);
  // What had last written a slot before that operator.
  OperandOrigin origin_at(const GraphStream& stream, OperandId slot, const Place& before) const;
  std::string memory_text(const DeviceMemory& memory, const Place& before, size_t most, const TensorNames& names) const;

  Credits& credits_;
  ReadChecks* const checks_;
  const int32_t num_nodes_;  // lost ones included
  mutable std::mutex mutex_;
  Route route_;  // under mutex_, as all below
  std::condition_variable settled_;
  std::vector<GraphStream*> streams_;
  TraceBook* trace_book_ = nullptr;
  std::deque<std::unique_ptr<LedgerEntry>> entries_;  // in order of sequence, none missing; null: settled
  Sequence first_ = 0;                                // of entries_[0]
  struct WaitingRead {
    IntrusivePtr<ReadState> state;
    bool settled = false;  // only data is missing
  };
  std::unordered_map<uint64_t, WaitingRead> reads_;
  std::atomic<int64_t> num_reads_{0};
  std::vector<Clock::time_point> heard_;  // by the first node of a branch
  std::vector<Ack> latest_;               // statistics, by node
  RuntimeStats totals_;
  TemplateStats templates_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::function<void()> on_failure_;
};

}  // namespace dtorch
