#include "runtime/worker/device_communicators.h"

#include <algorithm>
#include <set>

#include "runtime/base/error.h"
#include "runtime/comm/transfer.h"

namespace dtorch {
namespace {

// Stages of a transfer's own messages are below.
constexpr size_t kIdStage = 15;

}  // namespace

// Sends the id to the other nodes of a group, or gets it from the one that makes it.
class DeviceCommunicators::IdExchange final : public CommTask {
 public:
  IdExchange(std::shared_ptr<DeviceCommunicators> owner, std::shared_ptr<Entry> entry, int32_t maker,
             std::vector<int32_t> others, uint64_t number)
      : owner_(std::move(owner)),
        entry_(std::move(entry)),
        maker_(maker),
        others_(std::move(others)),
        tag_(transfer_tag(owner_->epoch_, number, kIdStage)) {}

  bool poll(Transport& transport) override {
    if (!has_begun_) begin(transport);
    std::erase_if(requests_, [&](Transport::Request request) { return transport.test(request); });
    if (!requests_.empty()) return false;
    owner_->set_id(entry_, *id_);
    return true;
  }

 private:
  void begin(Transport& transport) {
    has_begun_ = true;
    id_ = std::make_shared<CommunicatorFactory::Id>();
    if (transport.node() != maker_) {
      requests_.push_back(transport.receive(maker_, tag_, *id_, id_));
      return;
    }
    *id_ = owner_->factory_.new_id();
    for (int32_t other : others_) requests_.push_back(transport.send(other, tag_, *id_, id_));
  }

  const std::shared_ptr<DeviceCommunicators> owner_;
  const std::shared_ptr<Entry> entry_;
  const int32_t maker_;
  const std::vector<int32_t> others_;
  const uint32_t tag_;
  bool has_begun_ = false;
  std::shared_ptr<CommunicatorFactory::Id> id_;
  std::vector<Transport::Request> requests_;
};

void DeviceCommunicators::prepare(GraphId graph, const std::vector<Group>& groups, uint64_t number,
                                  const DeviceBinding& binding) {
  for (const Group& group : groups) {
    std::shared_ptr<Entry> entry;
    {
      std::lock_guard lock(mutex_);
      std::shared_ptr<Entry>& known = entries_[{graph, group}];
      if (known) continue;
      known = entry = std::make_shared<Entry>();
      entry->num_left = std::ranges::count_if(group, [&](int64_t device) { return binding.node_of(device) == node_; });
    }
    const int32_t maker = binding.node_of(group.front());
    std::set<int32_t> others;
    for (int64_t device : group) others.insert(binding.node_of(device));
    others.erase(maker);
    if (others.empty()) {
      set_id(entry, factory_.new_id());
      continue;
    }
    const std::vector<int32_t> receivers(others.begin(), others.end());
    comm_.submit(
        IntrusivePtr<CommTask>(new IdExchange(shared_from_this(), std::move(entry), maker, receivers, number)));
  }
}

void DeviceCommunicators::set_id(const std::shared_ptr<Entry>& entry, const CommunicatorFactory::Id& id) {
  {
    std::lock_guard lock(mutex_);
    entry->id = id;
    entry->has_id = true;
  }
  changed_.notify_all();
}

Communicator& DeviceCommunicators::of(GraphId graph, const Group& group, int64_t device, Accelerator& accelerator) {
  std::shared_ptr<Entry> entry;
  {
    std::unique_lock lock(mutex_);
    const auto at = entries_.find({graph, group});
    DTORCH_CHECK(at != entries_.end(), "a collective of devices that have no communicator");
    entry = at->second;
    const auto known = entry->by_device.find(device);
    if (known != entry->by_device.end()) return *known->second;
    changed_.wait(lock, [&] { return entry->has_id || is_over_.load(); });
    if (!entry->has_id) throw RuntimeFault("the job is ending");
  }
  const auto rank = static_cast<int32_t>(std::ranges::find(group, device) - group.begin());
  std::unique_ptr<Communicator> joined =
      factory_.join(entry->id, rank, static_cast<int32_t>(group.size()), accelerator,
                    {.deadline_s = deadline_s_, .is_over = [this] { return is_over_.load(); }});
  std::lock_guard lock(mutex_);
  Communicator& kept = *(entry->by_device[device] = std::move(joined));
  // Under the lock: cancel() either finds it among those that are kept or was there before.
  if (is_over_.load()) kept.cancel();
  return kept;
}

void DeviceCommunicators::forget(GraphId graph, int64_t device) {
  std::vector<std::unique_ptr<Communicator>> gone;  // outside of the lock
  std::lock_guard lock(mutex_);
  for (auto at = entries_.lower_bound({graph, {}}); at != entries_.end() && at->first.first == graph;) {
    Entry& entry = *at->second;
    const Group& group = at->first.second;
    if (const auto found = entry.by_device.find(device); found != entry.by_device.end()) {
      gone.push_back(std::move(found->second));
      entry.by_device.erase(found);
    }
    const bool is_last = std::ranges::find(group, device) != group.end() && --entry.num_left == 0;
    at = is_last ? entries_.erase(at) : std::next(at);
  }
}

void DeviceCommunicators::cancel() {
  is_over_.store(true);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : entries_) {
      for (const auto& [device, communicator] : entry->by_device) communicator->cancel();
    }
  }
  changed_.notify_all();
}

}  // namespace dtorch
