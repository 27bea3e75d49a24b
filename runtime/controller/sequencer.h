// The sequencer: the one place where pieces of all Graphs get their order (I4). Credit is taken first; then, in one
// critical section, the sequence number and the transfer numbers are drawn, the piece is encoded, entered in the ledger
// and put on every node's queue. Thread-safe.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/endpoint.h"
#include "runtime/controller/ledger.h"

namespace dtorch {

// Host bytes that an operator of a piece uses, and the devices that want them.
struct PieceFeed {
  uint64_t number = 0;
  SharedBytes bytes;
  DeviceMesh mesh;
};

// What an executor hands over: one piece of its Graph, after the passes.
struct PieceDraft {
  LogicalGraph graph;
  std::vector<OperatorSpec> new_specs;
  uint32_t num_transfers = 0;  // operators of the piece that move data between devices
  std::vector<PieceFeed> feeds;
  std::vector<LedgerRead> reads;
  std::vector<IntrusivePtr<ReadState>> barriers;
  bool wants_ack_now = false;
  int64_t num_operators = 0;  // that need credit
  int64_t num_bytes = 0;
};

class Sequencer {
 public:
  Sequencer(ControlEndpoint& control, Ledger& ledger, Credits& credits, const DeviceBinding& binding, uint32_t epoch)
      : control_(control), ledger_(ledger), credits_(credits), binding_(binding), epoch_(epoch) {}
  // Blocks while there is no credit; never on a node. False when everything has failed; the draft's reads have then
  // failed too.
  bool submit(GraphStream& stream, PieceDraft draft);

 private:
  void send_feeds(const std::vector<PieceFeed>& feeds);
  ControlEndpoint& control_;
  Ledger& ledger_;
  Credits& credits_;
  const DeviceBinding& binding_;
  const uint32_t epoch_;
  std::mutex mutex_;
  PieceEncoder encoder_;  // under mutex_, as all below
  Sequence next_sequence_ = 1;
  uint64_t next_transfer_ = 1;
};

}  // namespace dtorch
