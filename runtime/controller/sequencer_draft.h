// What an executor hands to the sequencer.
#pragma once
#include <memory>
#include <vector>

#include "runtime/controller/ledger.h"
#include "runtime/controller/template.h"

namespace dtorch {

// Host bytes that an operator of a piece uses, and the devices that want them.
struct PieceFeed {
  uint64_t number = 0;
  SharedBytes bytes;
  DeviceMesh mesh;
};

// One piece of a Graph, after the passes.
struct PieceDraft {
  LogicalGraph graph;
  std::unique_ptr<ReplayDraft> replay;         // instead of `graph` and `new_specs`
  std::vector<const OperatorSpec*> new_specs;  // the client's
  uint32_t num_transfers = 0;                  // operators of the piece that move data between devices
  std::vector<PieceFeed> feeds;
  std::vector<LedgerRead> reads;
  std::vector<IntrusivePtr<ReadState>> barriers;
  bool wants_ack_now = false;
  bool closes_graph = false;  // a piece
  int64_t num_operators = 0;  // that need credit
  int64_t num_bytes = 0;
};

}  // namespace dtorch
