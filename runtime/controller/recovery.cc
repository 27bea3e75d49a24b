#include "runtime/controller/recovery.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "mesh/binding.h"
#include "runtime/base/log.h"
#include "runtime/controller/handshake.h"
#include "runtime/controller/peer_lost.h"

namespace dtorch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kNamedValues = 3;  // in an error
constexpr int64_t kMostCopies = 2;  // of a box, beside the nodes' own

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

std::string list(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

std::string describe_lost(const std::vector<LiveValue>& values, const std::vector<size_t>& lost) {
  std::string text = std::to_string(lost.size()) + " values have no copy left (";
  for (size_t i = 0; i < std::min(lost.size(), kNamedValues); ++i)
    text += (i == 0 ? "" : "; ") + values[lost[i]].meta->str();
  return text + (lost.size() > kNamedValues ? "; ...)" : ")");
}

}  // namespace

Recovery::Recovery(const Parts& parts, const RuntimeOptions& options, const Route& route)
    : parts_(parts), options_(options), live_(route.tree.nodes()), kept_at_(places_of(route)), thread_([this] {
        loop();
      }) {
  parts_.ledger.set_on_failure([this] { on_failure(); });
}

Recovery::~Recovery() { stop(); }

void Recovery::stop() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Recovery::node_lost(int32_t node, const std::string& cause) {
  {
    std::lock_guard lock(mutex_);
    if (!lost_.insert(node).second) return;
    losses_.push_back({node, cause});
  }
  parts_.control.set_lost(node);
  parts_.inspection.set_lost(node);
  changed_.notify_all();
}

void Recovery::on_failure() {
  { std::lock_guard lock(mutex_); }  // whoever is about to wait has seen it, or waits by now
  changed_.notify_all();
}

RecoveryStats Recovery::stats() const {
  std::lock_guard lock(mutex_);
  RecoveryStats stats = stats_;
  stats.log_bytes = parts_.log.num_bytes();
  stats.snapshots = parts_.log.num_snapshots();
  return stats;
}

void Recovery::on_ack() {
  if (!is_replaying_.load() && !is_pending_finished()) return;
  {
    std::lock_guard lock(mutex_);
    has_news_ = true;
  }
  changed_.notify_all();
}

void Recovery::on_stored(const SnapshotStored& stored) {
  {
    std::lock_guard lock(mutex_);
    const auto at = storing_.find(stored.snapshot);
    // Of an earlier epoch, perhaps.
    if (at == storing_.end() || stored.epoch != stats_.epoch) return;
    if (!stored.problem.empty())
      at->second.problem = "node " + std::to_string(stored.node) + ": " + stored.problem;
    else if (at->second.missing.erase(stored.node) == 0)
      return;
    at->second.own_bytes += stored.own_bytes;
    at->second.copy_bytes += stored.copy_bytes;
    has_news_ = true;
  }
  changed_.notify_all();
}

void Recovery::loop() {
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-recover"));  // for tools, where it is allowed
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const bool has_losses = !losses_.empty();
    has_news_ = false;
    lock.unlock();
    try {
      if (has_losses) recover();
      // Also after a recovery, in which what has come was left for later.
      if (!parts_.ledger.has_failed()) {
        store_pending();
        finish_stored();
      }
    } catch (...) {
      parts_.ledger.fail_all(std::current_exception());
    }
    lock.lock();
    changed_.wait(lock, [&] { return ending_ || has_news_ || !losses_.empty(); });
  }
}

// --- snapshots
// ---------------------------------------------------------------------------------------------------------------------

// With several spares two may be lost at once, the second one perhaps in the recovery from the first.
SnapshotPlaces Recovery::places_of(const Route& route) const {
  return choose_places(route, static_cast<int32_t>(std::clamp<int64_t>(options_.spares, 1, kMostCopies)));
}

// Everything before the cut has finished, with its transfers: what was on its way there has arrived.
bool Recovery::is_pending_finished() const {
  const Sequence last = parts_.log.pending_last();
  return last != 0 && parts_.ledger.first_unsettled() > last;
}

void Recovery::send_store(Sequencer::Held& held, PieceEncoder& encoder, const ReplayLog::Cut& cut) {
  Storing storing{.places = places_of(held.route())};
  storing.missing.insert(live_.begin(), live_.end());
  const SnapshotOrder order{
      .snapshot = cut.snapshot, .action = SnapshotAction::kStore, .values = cut.values, .places = storing.places};
  {
    std::lock_guard lock(mutex_);
    storing_[cut.snapshot] = std::move(storing);
  }
  held.send_to_all(encoder.encode(order));
}

void Recovery::store_pending() {
  if (!is_pending_finished()) return;
  Sequencer::Held held(parts_.sequencer);
  const ReplayLog::Cut* cut = parts_.log.pending();
  {
    std::lock_guard lock(mutex_);
    if (cut == nullptr || storing_.contains(cut->snapshot)) return;
  }
  send_store(held, held.encoder(), *cut);
}

void Recovery::finish_stored() {
  {
    std::lock_guard lock(mutex_);
    if (std::ranges::none_of(storing_, [](const auto& entry) { return entry.second.is_decided(); })) return;
  }
  Sequencer::Held held(parts_.sequencer);
  finish_stored(held);
}

void Recovery::finish_stored(Sequencer::Held& held) {
  std::map<SnapshotId, Storing> finished;
  {
    std::lock_guard lock(mutex_);
    for (auto at = storing_.begin(); at != storing_.end();) {
      const auto here = at++;
      if (here->second.is_decided()) finished.insert(storing_.extract(here));
    }
  }
  for (auto& [snapshot, storing] : finished) {
    if (!storing.problem.empty()) {
      give_up(held, snapshot, storing.problem);
      continue;
    }
    const ReplayLog::Cut* pending = parts_.log.pending();
    if (pending != nullptr && pending->snapshot == snapshot) {
      parts_.log.commit();
      held.send_to_all(held.encoder().encode(SnapshotOrder{.snapshot = snapshot, .action = SnapshotAction::kCommit}));
    } else if (parts_.log.base().snapshot != snapshot) {
      continue;
    }
    kept_at_ = std::move(storing.places);
    std::lock_guard lock(mutex_);
    std::erase_if(storing_, [&, id = snapshot](const auto& entry) { return entry.first < id; });
    stats_.snapshot_bytes = storing.own_bytes;
    stats_.copy_bytes = storing.copy_bytes;
  }
}

// The one before it stays the one to go back to.
void Recovery::give_up(Sequencer::Held& held, SnapshotId snapshot, const std::string& problem) {
  log_warn("snapshot {} is given up ({}); the job can go on from snapshot {}", snapshot, problem,
           parts_.log.base().snapshot);
  const ReplayLog::Cut* pending = parts_.log.pending();
  if (pending == nullptr || pending->snapshot != snapshot) return;
  parts_.log.give_up_pending();
  held.send_to_all(held.encoder().encode(SnapshotOrder{.snapshot = snapshot, .action = SnapshotAction::kDrop}));
}

// --- losses
// ---------------------------------------------------------------------------------------------------------------------

bool Recovery::is_interrupted() {
  if (parts_.ledger.has_failed()) return true;
  std::lock_guard lock(mutex_);
  return ending_ || !losses_.empty();
}

std::string Recovery::take_losses() {
  std::vector<Loss> losses;
  {
    std::lock_guard lock(mutex_);
    losses.swap(losses_);
  }
  std::string text;
  for (const Loss& loss : losses) {
    std::erase(live_, loss.node);
    text += (text.empty() ? "node " : ", node ") + std::to_string(loss.node) + " is lost (" + loss.cause + ")";
  }
  return text;
}

void Recovery::recover() {
  const auto began = Clock::now();
  Sequencer::Held held(parts_.sequencer);
  if (parts_.ledger.has_failed()) take_losses();
  is_replaying_.store(true);
  while (!parts_.ledger.has_failed()) {
    finish_stored(held);  // copies that are there by now may be the ones that are needed
    const std::string what = take_losses();
    if (live_.empty()) throw PeerLost(what + "; no node is left");
    const DeviceBinding before = held.route().binding;
    try {
      begin_epoch(held);
    } catch (const PeerLost& error) {
      throw PeerLost(what + "; " + error.what());
    }
    bool is_told = false;
    for (int32_t node = 0; node < before.num_nodes; ++node) {
      const std::vector<int64_t> devices = devices_of(before, node);
      if (devices.empty() || std::ranges::binary_search(live_, node)) continue;
      log_warn("{}; its devices {} go to node {}, from snapshot {} on", what, list(devices),
               held.route().binding.node_of(devices.front()), parts_.log.base().snapshot);
      is_told = true;
    }
    if (!is_told) log_warn("{}; it had no devices; from snapshot {} on", what, parts_.log.base().snapshot);
    if (!send_log(held)) {
      std::lock_guard lock(mutex_);
      if (!ending_) continue;
      break;
    }
    is_replaying_.store(false);
    std::lock_guard lock(mutex_);
    ++stats_.recoveries;
    stats_.last_recovery_s = seconds_since(began);
    log_warn("all work since then is under way again after {:.1f} s: {} pieces", stats_.last_recovery_s,
             parts_.log.items().size());
    return;
  }
  is_replaying_.store(false);
}

void Recovery::begin_epoch(Sequencer::Held& held) {
  const Route& now = held.route();
  Route next{now.epoch + 1, rebind(now, live_, kept_at_), FanOut(live_, options_.fan_out)};
  const ReplayLog::Cut& base = parts_.log.base();
  std::vector<bool> is_live(static_cast<size_t>(now.binding.num_nodes));
  for (int32_t node : live_) is_live[static_cast<size_t>(node)] = true;
  const SnapshotMoves moves = moves_of(base.values, kept_at_, next.binding.node_of_device, is_live);
  if (!moves.lost.empty()) throw PeerLost(describe_lost(base.values, moves.lost));
  if (!parts_.log.is_complete()) throw PeerLost("too much was sent since the last snapshot to be kept");

  parts_.log.drop_pending();
  {
    std::lock_guard handling(parts_.handling);
    parts_.log.note_done_effects(parts_.ledger);
    parts_.ledger.restart(next, base.last + 1, held.next_sequence());
    std::lock_guard lock(mutex_);
    storing_.clear();
    stats_.epoch = next.epoch;
  }
  held.set_route(std::move(next));
  held.send_to_all(encode(make_config(held.route(), options_)));
  PieceEncoder encoder = held.encoder().at(base.num_meshes);
  held.send_to_all(encoder.encode(SnapshotOrder{.snapshot = base.snapshot,
                                                .action = SnapshotAction::kRestore,
                                                .values = base.values,
                                                .places = kept_at_,
                                                .done_effects = parts_.log.done_effects()}));
  for (Message& message : parts_.log.definitions(encoder)) held.send_to_all(std::move(message));
  // Boxes that only the lost node's buddy has get another copy at once.
  if (base.snapshot != 0) send_store(held, encoder, base);
}

bool Recovery::send_log(Sequencer::Held& held) {
  resent_.clear();
  resent_sum_ = {};
  for (const ReplayLog::Item& item : parts_.log.items()) {
    const bool is_piece = item.sequence != 0;
    if (is_piece && !wait_for_room(item)) return false;
    held.send_feeds(item.feeds);
    held.send_to_all(item.message);
    if (!is_piece) continue;
    const Credit credit{std::max<int64_t>(item.num_operators, 1), item.num_bytes};
    resent_[item.sequence] = credit;
    resent_sum_ = {resent_sum_.operators + credit.operators, resent_sum_.bytes + credit.bytes};
    std::lock_guard lock(mutex_);
    ++stats_.replayed_pieces;
  }
  // They hold no credit, so that the program would have as much under way beside them.
  return wait_until_resent_is_done();
}

void Recovery::drop_what_is_done() {
  const Sequence first = parts_.ledger.first_unsettled();
  while (!resent_.empty() && resent_.begin()->first < first) {
    const Credit& credit = resent_.begin()->second;
    resent_sum_ = {resent_sum_.operators - credit.operators, resent_sum_.bytes - credit.bytes};
    resent_.erase(resent_.begin());
  }
}

// As much may be under way as otherwise (Credits).
bool Recovery::wait_for_room(const ReplayLog::Item& item) {
  return wait_until([&] {
    return resent_.empty() || (resent_sum_.operators + item.num_operators <= options_.inflight_operators &&
                               resent_sum_.bytes + item.num_bytes <= options_.inflight_bytes);
  });
}

bool Recovery::wait_until_resent_is_done() {
  return wait_until([&] { return resent_.empty(); });
}

// False: interrupted.
bool Recovery::wait_until(const std::function<bool()>& has_room) {
  while (!is_interrupted()) {
    {
      std::lock_guard lock(mutex_);
      has_news_ = false;
    }
    drop_what_is_done();
    if (has_room()) return true;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ending_ || has_news_ || !losses_.empty() || parts_.ledger.has_failed(); });
  }
  return false;
}

}  // namespace dtorch
