// EagerGraphExecutor: the thread that turns one Graph's stream of records into pieces for the nodes. It cuts
// incremental subgraphs, rewrites them (passes) and hands them to the sequencer. It holds no tensor data (but feeds on
// their way) and never loops over devices.
//
// A subgraph ends at a read, a flush, an operator with ends_subgraph, or after kMaxSubgraph operators: a function of
// the stream only, never of time (D12). A subgraph under way is sent in pieces when the nodes would idle (little in
// flight and nothing left in the ring); where pieces end matters to nobody.
//
// After a failure of everything the thread stays to answer reads with that failure until the Graph is closed.
#pragma once
#include <atomic>
#include <thread>

#include "runtime/client/record_codec.h"
#include "runtime/controller/passes/pass.h"
#include "runtime/controller/sequencer.h"

namespace dtorch {

class EagerGraphExecutor {
 public:
  static constexpr int64_t kMaxSubgraph = 512;  // operators
  static constexpr int32_t kPiecesAhead = 2;    // in flight, so that the nodes don't idle

  // Starts the thread.
  EagerGraphExecutor(std::shared_ptr<GraphLink> link, Ledger& ledger, Sequencer& sequencer, Credits& credits,
                     PassList passes);
  // Ends the thread, at the latest when the ring is empty.
  ~EagerGraphExecutor();
  // Waits until the Graph's kClose record was consumed and all its work is settled, or everything has failed and the
  // ring is empty.
  void close();
  GraphStream& stream() { return stream_; }

 private:
  void loop();
  void take_records();
  void take_record();
  void take_operator(const RecordReader& record);
  bool idles() const { return stream_.pieces_in_flight.load() < kPiecesAhead; }
  void send_piece();
  void finish_draft();  // passes, and what follows from what is left
  void answer_with_failure();

  GraphStream stream_;
  Ledger& ledger_;
  Sequencer& sequencer_;
  PassList passes_;
  const int64_t max_piece_operators_;
  const int64_t max_piece_bytes_;
  RecordReader reader_;
  PieceDraft draft_;                // the piece under way
  int64_t subgraph_operators_ = 0;  // since the last boundary
  bool closed_ = false;             // kClose was consumed
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace dtorch
