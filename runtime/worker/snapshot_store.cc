#include "runtime/worker/snapshot_store.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <utility>

#include "runtime/worker/native/native_memory.h"

namespace dtorch {

namespace {

// What an Arrival that is settled holds.
void resolve(KeptValue& kept) {
  if (!kept.pending || !kept.pending->event.is_set()) return;
  kept.value = kept.pending->value;
  kept.poison = kept.pending->poison;
  kept.pending.reset();
}

void settle(Arrival& arrival, const SnapshotPart& fields, const SharedBytes& payload) {
  if (fields.is_poisoned) {
    arrival.poison =
        make_intrusive<Poison>(fields.poison, fields.poison_device, fields.poison_sequence, fields.poison_op_index);
  } else {
    set_memory_counter(&arrival.memory);
    arrival.value = unpack_part(fields, payload);
    set_memory_counter(nullptr);
  }
  arrival.event.set();
}

}  // namespace

SnapshotStore::~SnapshotStore() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    window_->close();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SnapshotStore::wake_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
}

void SnapshotStore::begin(SnapshotId snapshot, size_t num_devices) {
  std::lock_guard lock(mutex_);
  kept_[snapshot].parts_missing = num_devices;
}

void SnapshotStore::add(SnapshotId snapshot, int64_t device, KeptPart part) {
  std::lock_guard lock(mutex_);
  const auto at = kept_.find(snapshot);
  if (at == kept_.end()) return;  // dropped since
  at->second.parts[device] = std::move(part);
  if (--at->second.parts_missing == 0) changed_.notify_all();
}

void SnapshotStore::store(SnapshotOrder order) {
  std::lock_guard lock(mutex_);
  Kept& kept = kept_[order.snapshot];
  kept.order = std::make_shared<const SnapshotOrder>(std::move(order));
  kept.copies_sent = kept.said = false;
  wake_thread();
}

void SnapshotStore::commit(SnapshotId snapshot) {
  std::map<SnapshotId, Kept> dropped;  // freed outside of the lock
  std::lock_guard lock(mutex_);
  while (!kept_.empty() && kept_.begin()->first < snapshot) dropped.insert(kept_.extract(kept_.begin()));
}

void SnapshotStore::drop(SnapshotId snapshot) {
  Kept dropped;  // freed outside of the lock
  std::lock_guard lock(mutex_);
  drop_copies_to_send(snapshot);
  if (const auto at = kept_.find(snapshot); at != kept_.end()) dropped = std::move(kept_.extract(at).mapped());
}

void SnapshotStore::drop_copies_to_send(SnapshotId snapshot) {
  std::erase_if(to_send_,
                [&](const Sending& sending) { return sending.fields.is_copy && sending.fields.snapshot == snapshot; });
}

void SnapshotStore::begin_epoch(uint32_t epoch) {
  std::lock_guard lock(mutex_);
  epoch_ = epoch;
  window_->close();
  window_ = std::make_shared<SendWindow>(kMaxBytesUnderWay);
  is_restored_ = false;
  early_.clear();
  to_send_.clear();
  for (auto& [snapshot, kept] : kept_) kept.order.reset();
}

const KeptValue* SnapshotStore::find(const Kept& kept, int64_t device, const LiveValue& value) {
  const auto part = kept.parts.find(device);
  if (part == kept.parts.end()) return nullptr;
  const auto before = [](const KeptValue& a, const LiveValue& b) {
    return std::pair(a.graph, a.slot) < std::pair(b.graph, b.slot);
  };
  const auto at = std::lower_bound(part->second.begin(), part->second.end(), value, before);
  return at != part->second.end() && at->graph == value.graph && at->slot == value.slot ? &*at : nullptr;
}

std::vector<KeptPart> SnapshotStore::restore(const SnapshotOrder& order, const std::vector<int64_t>& devices,
                                             const std::vector<int32_t>& node_of_device, const std::vector<bool>& live,
                                             const NewArrival& new_arrival) {
  const SnapshotMoves plan = moves_of(order.values, order.places, node_of_device, live);
  std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) { return entry.first != order.snapshot; });
  Kept& kept = kept_[order.snapshot];
  kept.awaited.clear();
  // What an interrupted recovery has brought here isn't complete.
  std::erase_if(kept.parts, [&](const auto& part) {
    return order.places.node_of_device[static_cast<size_t>(part.first)] != node_;
  });
  const auto held = [&](const SnapshotMove& move) -> KeptValue {
    const LiveValue& value = order.values[move.value];
    const KeptValue* found = find(kept, move.owner, value);
    DTORCH_CHECK(found != nullptr, "a snapshot lacks a value that this node holds");
    return *found;
  };
  std::map<int64_t, KeptPart> moved;
  for (const SnapshotMove& move : plan.moves) {
    const LiveValue& value = order.values[move.value];
    const Key key(move.owner, value.graph, value.slot);
    if (move.to == node_) {
      KeptValue& begins = moved[move.device].emplace_back(KeptValue{value.graph, value.slot, {}, {}, {}});
      if (move.from == node_ && !move.from_copy) {
        begins = held(move);
        continue;
      }
      begins.pending = new_arrival(move.device);
      begins.pending->is_shared = true;
      if (move.from == node_) {
        const Copy& copy = kept.copies.at(key);
        settle(*begins.pending, copy.fields, copy.payload);
        resolve(begins);
      } else {
        kept.awaited[{move.device, value.graph, value.slot}] = begins.pending;
      }
    } else if (move.from == node_) {
      Sending sending{.fields = {.snapshot = order.snapshot,
                                 .owner = move.owner,
                                 .device = move.device,
                                 .graph = value.graph,
                                 .slot = value.slot},
                      .to = {move.to}};
      if (move.from_copy)
        sending.copy = kept.copies.at(key);
      else
        sending.kept = held(move);
      to_send_.push_back(std::move(sending));
    }
  }
  for (auto& [device, part] : moved) kept.parts[device] = std::move(part);
  std::vector<KeptPart> parts;
  for (int64_t device : devices) parts.push_back(kept.parts[device]);
  kept.parts_missing = 0;
  kept.restored_from = order.places;
  is_restored_ = true;
  for (const Copy& early : std::exchange(early_, {})) {
    settle(*awaited_for(early.fields), early.fields, early.payload);
    kept.awaited.erase(key_of(early.fields));
  }
  wake_thread();
  return parts;
}

IntrusivePtr<Arrival> SnapshotStore::awaited_for(const SnapshotPart& part) {
  const auto kept = kept_.find(part.snapshot);
  if (kept != kept_.end()) {
    const auto at = kept->second.awaited.find(key_of(part));
    if (at != kept->second.awaited.end()) return at->second;
  }
  throw DecodeError("a part of a snapshot came that nobody waits for");
}

void SnapshotStore::take_part(SnapshotPart part, SharedBytes payload) {
  IntrusivePtr<Arrival> arrival;
  {
    std::lock_guard lock(mutex_);
    if (part.is_copy) {
      const Key key = key_of(part);
      Kept& kept = kept_[part.snapshot];
      kept.copies[key] = {std::move(part), std::move(payload)};
      kept.copies_missing.erase(key);
      if (kept.copies_missing.empty()) changed_.notify_all();
      return;
    }
    if (!is_restored_) {
      early_.push_back({std::move(part), std::move(payload)});
      return;
    }
    arrival = awaited_for(part);
  }
  settle(*arrival, part, payload);
  std::lock_guard lock(mutex_);
  kept_[part.snapshot].awaited.erase(key_of(part));  // not before: then the snapshot is complete
  changed_.notify_all();
}

void SnapshotStore::fail(const std::string& what) {
  control_.send(kController, encode(ErrorReport{.epoch = epoch_, .node = node_, .device = -1, .message = what}));
}

// --- the thread
// ---------------------------------------------------------------------------------------------------------------------

void SnapshotStore::loop() {
  static_cast<void>(pthread_setname_np(pthread_self(), "dtorch-snapshot"));  // for tools, where it is allowed
  std::unique_lock lock(mutex_);
  while (!ending_) {
    try {
      if (next_sending(lock) || next_store()) continue;
    } catch (const std::exception& error) {
      // A value that isn't there, or memory that is short for one that a device begins with.
      if (!lock.owns_lock()) lock.lock();
      to_send_.clear();
      for (auto& [snapshot, kept] : kept_) kept.order.reset();
      fail(error.what());
    }
    changed_.wait(lock);
  }
}

bool SnapshotStore::next_sending(std::unique_lock<std::mutex>& lock) {
  // In any order: a value that isn't here yet doesn't hold up the others.
  for (size_t i = 0; i < to_send_.size(); ++i) {
    resolve(to_send_[i].kept);
    if (to_send_[i].kept.pending) continue;
    Sending sending = std::move(to_send_[i]);
    to_send_.erase(to_send_.begin() + static_cast<std::ptrdiff_t>(i));
    const uint32_t epoch = epoch_;
    const std::shared_ptr<SendWindow> window = window_;
    const std::optional<SnapshotId> copied =
        sending.fields.is_copy ? std::optional(sending.fields.snapshot) : std::nullopt;
    lock.unlock();
    try {
      send(std::move(sending), epoch, window);
      lock.lock();
    } catch (const std::bad_alloc&) {
      lock.lock();
      if (!copied) throw;  // a device can't go on without it
      if (epoch == epoch_) give_up(*copied);
    }
    return true;
  }
  return false;
}

void SnapshotStore::send(Sending sending, uint32_t epoch, const std::shared_ptr<SendWindow>& window) {
  if (!window->wait_for_room()) return;  // the epoch has ended
  SnapshotPart fields = sending.fields;
  SharedBytes payload;
  if (sending.copy) {
    fields = sending.copy->fields;
    fields.device = sending.fields.device;
    fields.is_copy = false;
    payload = sending.copy->payload;
  } else if (const PoisonPtr& poison = sending.kept.poison) {
    fields.is_poisoned = true;
    fields.poison = poison->message;
    fields.poison_device = poison->device;
    fields.poison_sequence = poison->sequence;
    fields.poison_op_index = poison->op_index;
  } else {
    payload = pack_part(sending.kept.value, fields);
  }
  fields.epoch = epoch;
  const Message message = SendWindow::counted(window, encode(fields, std::move(payload)));
  for (int32_t node : sending.to) control_.send(node, message);
}

// The job goes on without this snapshot.
void SnapshotStore::give_up(SnapshotId snapshot) {
  drop_copies_to_send(snapshot);
  if (const auto at = kept_.find(snapshot); at != kept_.end()) at->second.order.reset();
  control_.send(kController, encode(SnapshotStored{.epoch = epoch_,
                                                   .node = node_,
                                                   .snapshot = snapshot,
                                                   .problem = "memory for a copy that another node keeps is short"}));
}

bool SnapshotStore::next_store() {
  // A value that was restored and that no call has read may be on its way still; cuts since then have it, too.
  for (const auto& [snapshot, kept] : kept_) {
    if (!kept.awaited.empty()) return false;
  }
  for (auto& [snapshot, kept] : kept_) {
    if (kept.order == nullptr || kept.said || kept.parts_missing != 0) continue;
    if (!kept.copies_sent) {
      plan_copies(snapshot, kept);
      kept.copies_sent = true;
      return true;
    }
    if (!to_send_.empty() || !kept.copies_missing.empty()) continue;
    say_stored(snapshot, kept);
    return true;
  }
  return false;
}

// What no call can read any more isn't kept (the part of a device that isn't in a value's mesh); all else must be
// there.
void SnapshotStore::plan_copies(SnapshotId snapshot, Kept& kept) {
  const SnapshotOrder& order = *kept.order;
  for (auto& [device, part] : kept.parts) {
    KeptPart live;
    for (const LiveValue& value : order.values) {
      if (value.meta->layout.mesh().index_of(device) < 0) continue;
      const KeptValue* found = find(kept, device, value);
      DTORCH_CHECK(found != nullptr, "operand " + std::to_string(value.slot) + " of graph " +
                                         std::to_string(value.graph) + " has no value on device " +
                                         std::to_string(device) + " at a cut");
      live.push_back(*found);
      resolve(live.back());
      DTORCH_CHECK(!live.back().pending, "a value before a cut hasn't arrived");
    }
    part = std::move(live);
  }
  kept.copies_missing.clear();
  std::set<SnapshotCopy> there;
  if (kept.restored_from) {
    for (const SnapshotCopy& copy : copies_of(order.values, *kept.restored_from)) there.insert(copy);
  }
  const SnapshotCopy* last = nullptr;  // that is sent from here
  const std::vector<SnapshotCopy> copies = copies_of(order.values, order.places);
  for (const SnapshotCopy& copy : copies) {
    const LiveValue& value = order.values[copy.value];
    const Key key(copy.owner, value.graph, value.slot);
    if (copy.to == node_ && !kept.copies.contains(key)) kept.copies_missing.insert(key);
    if (order.places.node_of_device[static_cast<size_t>(copy.owner)] != node_ || there.contains(copy)) continue;
    if (last != nullptr && last->value == copy.value && last->owner == copy.owner) {
      to_send_.back().to.push_back(copy.to);
      continue;
    }
    last = &copy;
    to_send_.push_back({.fields = {.snapshot = snapshot,
                                   .owner = copy.owner,
                                   .device = copy.owner,
                                   .is_copy = true,
                                   .graph = value.graph,
                                   .slot = value.slot},
                        .to = {copy.to},
                        .kept = *find(kept, copy.owner, value)});
  }
}

void SnapshotStore::say_stored(SnapshotId snapshot, Kept& kept) {
  SnapshotStored stored{.epoch = epoch_, .node = node_, .snapshot = snapshot};
  for (const auto& [device, part] : kept.parts) {
    for (const KeptValue& value : part) stored.own_bytes += value.value ? value.value.num_bytes() : 0;
  }
  for (const auto& [key, copy] : kept.copies)
    stored.copy_bytes += copy.payload ? static_cast<int64_t>(copy.payload->size()) : 0;
  kept.said = true;
  control_.send(kController, encode(stored));
}

}  // namespace dtorch
