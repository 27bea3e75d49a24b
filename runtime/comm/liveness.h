// Who of a job's ranks is still there. Every Sub-Controller sends the controller a heartbeat five times a second, the
// controller each of them one a second; whoever is silent for too long is lost, and at once when its process on this
// machine has ended, or MPI fails between it and another. A node that is given up and still there (it was stopped, or
// cut off) is ended: on the controller's machine by a signal, elsewhere by an answer to the first that it says. Runs on
// the comm thread.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/comm_thread.h"
#include "runtime/comm/mpi_control.h"
#include "runtime/comm/peer_process.h"

namespace dtorch {

class Liveness final : public ProgressSource {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    Clock::duration node, controller;  // of silence
  };
  // Told, once of each, of the peer that is lost: nodes on the controller, with the cause ("it has been silent for
  // 5.0 s"); kController on a node, with a sentence. Comm thread.
  using OnLost = std::function<void(int32_t address, const std::string& cause)>;

  // `address` is this process's own; `control` outlives this object. `local`: other ranks of this machine.
  Liveness(MpiControl& control, int32_t address, int32_t num_nodes, Limits limits, std::vector<PeerProcess> local);
  // Before the comm thread runs.
  void set_on_lost(OnLost on_lost) { on_lost_ = std::move(on_lost); }
  // MPI fails with that peer. Comm thread.
  void on_failure(int32_t peer, const std::string& what);
  // Any process of a node that was lost may still be there; comm thread, or after its end.
  bool all_lost_are_gone() const;

  bool progress() override;  // always false: heartbeats keep nobody awake
  bool needs_polling() const override { return true; }

 private:
  struct Peer {
    int32_t address = kController;
    uint64_t frames = 0;
    Clock::time_point heard;
    bool lost = false;
  };
  void beat(Clock::time_point now);
  void look(Clock::time_point now);
  void look_at(Peer& peer, Clock::time_point now);
  void lose(Peer& peer, const std::string& cause);
  const PeerProcess* process_of(int32_t address) const;
  void on_signal(const MpiControl::Told& told);
  Peer* peer_of(int32_t address);
  bool is_controller() const { return address_ == kController; }

  MpiControl& control_;
  const int32_t address_, num_nodes_;
  const Limits limits_;
  const std::vector<PeerProcess> local_;
  OnLost on_lost_;
  std::vector<Peer> peers_;           // those that this process watches
  std::vector<int32_t> unreachable_;  // other nodes, from a node
  size_t num_beats_ = 0;
  Clock::time_point looked_, next_look_, next_beat_;
};

}  // namespace dtorch
