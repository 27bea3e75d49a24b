// The sequencer: the one place where pieces of all Graphs get their order (I4). Credit is taken first; then, in one
// critical section, the sequence number and the transfer numbers are drawn, the piece is encoded, entered in the ledger
// and put on every node's queue. Thread-safe.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/comm/endpoint.h"
#include "runtime/controller/replay_log.h"
#include "runtime/controller/route.h"
#include "runtime/controller/sequencer_draft.h"

namespace dtorch {

class Sequencer {
 public:
  // log: where everything that is sent is kept for a recovery; null: there is none.
  Sequencer(ControlEndpoint& control, Ledger& ledger, Credits& credits, Route route, ReplayLog* log = nullptr)
      : control_(control), ledger_(ledger), credits_(credits), log_(log), route_(std::move(route)) {}
  // Blocks while there is no credit, and while a recovery is under way; never on a node. False when everything has
  // failed; the draft's reads have then failed too.
  bool submit(GraphStream& stream, PieceDraft draft);
  // Makes a template known to the nodes. new_specs: that it is the first to use.
  void define(GraphStream& stream, const Template& added, std::span<const OperatorSpec* const> new_specs);
  // To all nodes, between two pieces. Blocks as submit().
  void send_to_all(Message message);

  // While it lives nothing is submitted: for snapshots and recoveries.
  class Held {
   public:
    explicit Held(Sequencer& sequencer) : of_(sequencer), lock_(sequencer.mutex_) {}
    const Route& route() const { return of_.route_; }
    void set_route(Route route) { of_.route_ = std::move(route); }
    PieceEncoder& encoder() { return of_.encoder_; }
    Sequence next_sequence() const { return of_.next_sequence_; }
    // In the epoch of the route.
    void send_to_all(Message message) { of_.send_down(std::move(message)); }
    void send_feeds(const std::vector<PieceFeed>& feeds) { of_.send_feeds(feeds); }

   private:
    Sequencer& of_;
    std::lock_guard<std::mutex> lock_;
  };

 private:
  // Under mutex_, as the next four.
  void send_feeds(const std::vector<PieceFeed>& feeds);
  void send_down(Message message);
  void cut_if_due();
  Message encode_piece(const GraphStream& stream, PieceDraft& draft, LedgerEntry& entry);
  Message encode_replay(const GraphStream& stream, PieceDraft& draft, LedgerEntry& entry);
  ControlEndpoint& control_;
  Ledger& ledger_;
  Credits& credits_;
  ReplayLog* const log_;
  std::mutex mutex_;
  Route route_;  // under mutex_, as all below
  PieceEncoder encoder_;
  Sequence next_sequence_ = 1;
  uint64_t next_transfer_ = 1;
};

}  // namespace dtorch
