// Recovery: goes on when nodes are lost. A thread of its own takes snapshots to their end (cut by the sequencer, stored
// on the nodes, committed), and when a node is lost begins another epoch without it: binds its devices to others, has
// them begin with the committed snapshot, and sends what the log holds since then once more. Nothing is submitted
// meanwhile; the program notices a pause. What can't be recovered fails the job with PeerLost. docs/reliability.md.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/options_table.h"
#include "runtime/controller/inspection.h"
#include "runtime/controller/recovery_stats.h"
#include "runtime/controller/replay_log.h"
#include "runtime/controller/sequencer.h"

namespace dtorch {

class Recovery {
 public:
  // None is owned; all outlive it. handling: held while a message of a node is handled.
  struct Parts {
    ControlEndpoint& control;
    Sequencer& sequencer;
    Ledger& ledger;
    Inspection& inspection;
    ReplayLog& log;
    std::mutex& handling;
  };
  Recovery(const Parts& parts, const RuntimeOptions& options, const Route& route);
  ~Recovery();  // stop()
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  // Any thread; doesn't block.
  void node_lost(int32_t node, const std::string& cause);
  // Nothing more is recovered. Waits for what is under way, which is given up.
  void stop();
  RecoveryStats stats() const;

  // --- inbox thread; they don't block
  void on_ack();
  void on_stored(const SnapshotStored& stored);

 private:
  struct Loss {
    int32_t node = 0;
    std::string cause;
  };
  // A snapshot whose copies are on their way.
  struct Storing {
    SnapshotPlaces places = {};
    std::set<int32_t> missing = {};  // nodes that haven't said that they have all
    int64_t own_bytes = 0, copy_bytes = 0;
    std::string problem = {};  // why a node won't have all
    bool is_decided() const { return missing.empty() || !problem.empty(); }
  };
  void loop();
  void on_failure();  // what is waited for won't come: everything has failed; any thread, doesn't block
  bool is_pending_finished() const;
  void store_pending();
  void finish_stored();
  void finish_stored(Sequencer::Held& held);
  void give_up(Sequencer::Held& held, SnapshotId snapshot, const std::string& problem);
  // Until nothing is lost any more, or everything has failed.
  void recover();
  // Throws PeerLost when something has nobody left who holds it.
  void begin_epoch(Sequencer::Held& held);
  // False: more was lost meanwhile, or everything has failed.
  bool send_log(Sequencer::Held& held);
  bool wait_for_room(const ReplayLog::Item& item);
  bool wait_until_resent_is_done();
  bool wait_until(const std::function<bool()>& has_room);
  void drop_what_is_done();
  std::string take_losses();  // what has happened, for people
  bool is_interrupted();      // more was lost, or it is over
  SnapshotPlaces places_of(const Route& route) const;
  void send_store(Sequencer::Held& held, PieceEncoder& encoder, const ReplayLog::Cut& cut);

  const Parts parts_;
  const RuntimeOptions options_;
  std::vector<int32_t> live_;  // the thread's, as all up to resent_sum_
  SnapshotPlaces kept_at_;     // of the committed snapshot
  // The credit that pieces take that were sent again and aren't done, by number; and all of it.
  struct Credit {
    int64_t operators = 0, bytes = 0;
  };
  std::map<Sequence, Credit> resent_;
  Credit resent_sum_;
  std::atomic<bool> is_replaying_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Loss> losses_;  // under mutex_, as all below
  std::set<int32_t> lost_;
  std::map<SnapshotId, Storing> storing_;
  RecoveryStats stats_;
  bool has_news_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace dtorch
