#include "runtime/comm/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.h"

namespace dtorch {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(50);
constexpr auto kNodeBeatEvery = std::chrono::milliseconds(200);
constexpr auto kControllerBeatEvery = std::chrono::seconds(1);
// Longer between two looks means that this process itself was held up (stopped, or its machine asleep): what the others
// have sent meanwhile hasn't been taken yet.
constexpr auto kHeldUp = std::chrono::seconds(1);
// Of a process that is seen to be there, on a machine that has too much to do.
constexpr int kPatienceWithTheLiving = 6;
constexpr const char* kControllerEnded = "the controller's process has ended";

double seconds(Liveness::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Liveness::Liveness(MpiControl& control, int32_t address, int32_t num_nodes, Limits limits,
                   std::vector<PeerProcess> local)
    : control_(control), address_(address), num_nodes_(num_nodes), limits_(limits), local_(std::move(local)) {
  looked_ = next_look_ = next_beat_ = Clock::now();
  if (is_controller()) {
    for (int32_t node = 0; node < num_nodes_; ++node) peers_.push_back({.address = node, .heard = looked_});
  } else {
    peers_.push_back({.address = kController, .heard = looked_});
  }
  control_.set_callbacks([this](const MpiControl::Told& told) { on_signal(told); },
                         [this](int32_t peer, const std::string& what) { on_failure(peer, what); });
}

Liveness::Peer* Liveness::peer_of(int32_t address) {
  const auto at = std::ranges::find(peers_, address, &Peer::address);
  return at == peers_.end() ? nullptr : &*at;
}

void Liveness::on_failure(int32_t peer, const std::string& what) {
  if (Peer* watched = peer_of(peer)) return lose(*watched, what);
  if (std::ranges::find(unreachable_, peer) != unreachable_.end()) return;
  log_warn("node {} can't be reached: {}", peer, what);
  unreachable_.push_back(peer);
}

bool Liveness::progress() {
  const auto now = Clock::now();
  if (now >= next_look_) look(now);
  if (now >= next_beat_) beat(now);
  return false;
}

void Liveness::beat(Clock::time_point now) {
  next_beat_ = now + (is_controller() ? Clock::duration(kControllerBeatEvery) : Clock::duration(kNodeBeatEvery));
  for (const Peer& peer : peers_) {
    if (peer.lost) continue;
    if (unreachable_.empty())
      control_.signal(peer.address, MpiControl::Signal::kHeartbeat);
    else  // again and again: a signal may be dropped, and the first that arrives counts
      control_.signal(peer.address, MpiControl::Signal::kUnreachable, unreachable_[num_beats_ % unreachable_.size()]);
  }
  ++num_beats_;
}

void Liveness::look(Clock::time_point now) {
  const auto gap = now - looked_;
  looked_ = now;
  next_look_ = now + kLookEvery;
  for (Peer& peer : peers_) {
    if (gap > kHeldUp) peer.heard += gap;
    look_at(peer, now);
  }
}

void Liveness::look_at(Peer& peer, Clock::time_point now) {
  const uint64_t frames = control_.frames_from(peer.address);
  const bool spoke = std::exchange(peer.frames, frames) != frames;
  if (peer.lost) {
    if (spoke && is_controller()) control_.signal(peer.address, MpiControl::Signal::kGivenUp);
    return;
  }
  if (spoke) peer.heard = now;
  const PeerProcess* process = process_of(peer.address);
  if (process != nullptr && process->is_gone()) {
    // Those on other machines would wait for its silence.
    for (int32_t node = 0; !is_controller() && node < num_nodes_; ++node) {
      if (node != address_) control_.signal(node, MpiControl::Signal::kControllerGone);
    }
    return lose(peer, is_controller() ? "its process has ended" : kControllerEnded);
  }
  const auto silent = now - peer.heard;
  auto limit = is_controller() ? limits_.node : limits_.controller;
  if (silent <= limit) return;
  if (process != nullptr && !process->is_stopped()) limit *= kPatienceWithTheLiving;
  if (silent > limit)
    lose(peer,
         fmt::format("{} has been silent for {:.1f} s", is_controller() ? "it" : "the controller", seconds(silent)));
}

void Liveness::lose(Peer& peer, const std::string& cause) {
  if (std::exchange(peer.lost, true)) return;
  const PeerProcess* process = process_of(peer.address);
  if (is_controller() && process != nullptr) process->end();
  if (on_lost_) on_lost_(peer.address, cause);
}

void Liveness::on_signal(const MpiControl::Told& told) {
  if (is_controller()) {
    const Peer* const teller = peer_of(told.from);
    Peer* const unreachable = peer_of(told.node);
    // Of two that don't reach each other the one that is told of first.
    if (told.signal == MpiControl::Signal::kUnreachable && unreachable != nullptr && teller != nullptr && !teller->lost)
      lose(*unreachable, fmt::format("node {} can't reach it", told.from));
    return;
  }
  if (told.signal == MpiControl::Signal::kGivenUp)
    lose(peers_.front(), "this node was silent for too long and was given up; the job goes on without it");
  else if (told.signal == MpiControl::Signal::kControllerGone)
    lose(peers_.front(), kControllerEnded);
}

const PeerProcess* Liveness::process_of(int32_t address) const {
  const auto at = std::ranges::find(local_, address, &PeerProcess::address);
  return at == local_.end() ? nullptr : &*at;
}

bool Liveness::all_lost_are_gone() const {
  return std::ranges::all_of(peers_, [this](const Peer& peer) {
    const PeerProcess* process = process_of(peer.address);
    return !peer.lost || (process != nullptr && process->is_gone());
  });
}

}  // namespace dtorch
