// The ledger: every piece that was sent and isn't acknowledged by all nodes, what failed in it, and the reads that
// wait. Shared by the executors (enter) and the inbox thread (everything that comes back); one mutex, never held while
// a caller's code runs.
//
// A piece is complete when every node has acknowledged it, and settled when all earlier pieces of its Graph are
// complete too. Only then its reads are delivered. What an error reaches is followed when pieces settle, in stream
// order, on their logical graphs: an operator that failed or reads a tainted operand taints its outputs; a release or a
// new value clears a slot (errors in flight).
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/client/device_memory.h"
#include "runtime/client/link.h"
#include "runtime/controller/credits.h"
#include "runtime/controller/spec_table.h"
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
  CausePtr shown;                // the one of them that GraphLink::unread_failure shows, or null
};

// What the ledger keeps of a piece.
struct LedgerEntry {
  GraphStream* stream = nullptr;
  Sequence sequence = 0;
  LogicalGraph graph;                        // as sent, with source lines
  int64_t num_operators = 0, num_bytes = 0;  // the credit it holds
  std::vector<LedgerRead> reads;
  std::vector<IntrusivePtr<ReadState>> barriers;
  std::chrono::steady_clock::time_point sent_at;
  std::vector<bool> acknowledged;  // by node
  int32_t acks_missing = 0;
  bool settled = false;
  std::map<uint32_t, CausePtr> errors;  // by operator
};

class Ledger {
 public:
  using Clock = std::chrono::steady_clock;
  Ledger(int32_t num_nodes, Credits& credits);

  void add_stream(GraphStream& stream);
  // The stream has no work in flight (wait_settled).
  void remove_stream(GraphStream& stream);
  // Called in the sequencer's critical section, so that sequences come in order. False when everything has failed:
  // nothing is entered, and the reads have failed.
  bool enter(std::unique_ptr<LedgerEntry> entry);
  // Blocks until all work of the stream is settled, or everything has failed.
  void wait_settled(GraphStream& stream);

  // The four below throw RuntimeFault when a node says what can't be.
  void on_ack(const Ack& ack);
  void on_error(const ErrorReport& report);  // device >= 0
  void on_read_data(const ReadData& data, const SharedBytes& payload);
  void on_heard(int32_t node);

  // Everything fails for good: all Graphs, all reads, all waiters. The first failure wins.
  void fail_all(std::exception_ptr error);
  std::exception_ptr failure() const;
  bool has_failed() const { return failed_.load(); }

  // For the watchdog: the node that has been silent longest although it owes an acknowledgement.
  struct Silence {
    int32_t node = -1;  // -1: nobody owes anything
    std::chrono::nanoseconds since{0};
    std::string where;  // the oldest piece it owes, in words
  };
  Silence longest_silence(Clock::time_point now) const;
  bool reads_outstanding() const { return num_reads_.load() != 0; }
  RuntimeStats stats() const;
  // The devices of the nodes' last acknowledgements.
  void add_device_memory(const DeviceBinding& binding, ClientStats& stats) const;
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
  // Follows taint through the piece; returns the causes that reach its reads, by read number.
  std::unordered_map<uint64_t, CausePtr> follow_taint(LedgerEntry& entry);
  void finish_read(GraphStream& stream, const LedgerRead& read, const CausePtr& cause, Deliveries& out);
  // Keeps GraphLink::unread_failure at the first failure that nobody has seen: a read delivers one (`delivered`), and
  // the client takes away what it throws.
  void refresh_unread(GraphStream& stream, const CausePtr& delivered);
  void fail_stream(GraphStream& stream, Deliveries& out);
  void check_node(int32_t node) const;
  std::string describe(const LedgerEntry& entry) const;

  const int32_t num_nodes_;
  Credits& credits_;
  mutable std::mutex mutex_;
  std::condition_variable settled_;
  std::vector<GraphStream*> streams_;
  std::deque<std::unique_ptr<LedgerEntry>> entries_;  // in order of sequence, none missing; null: settled
  Sequence first_ = 0;                                // of entries_[0]
  struct WaitingRead {
    IntrusivePtr<ReadState> state;
    bool settled = false;  // only data is missing
  };
  std::unordered_map<uint64_t, WaitingRead> reads_;
  std::atomic<int64_t> num_reads_{0};
  std::vector<Clock::time_point> heard_;
  std::vector<Ack> latest_;  // statistics, by node
  RuntimeStats totals_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
};

}  // namespace dtorch
