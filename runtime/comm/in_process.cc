#include "runtime/comm/in_process.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

int64_t size_of_message(const Message& message) {
  return static_cast<int64_t>((message.head ? message.head->size() : 0) +
                              (message.payload ? message.payload->size() : 0));
}

// One side of a transfer. `done` publishes the copied bytes; what else is in it is written before.
struct Operation {
  const std::byte* out = nullptr;  // of a send
  std::byte* in = nullptr;         // of a receive
  size_t size = 0;
  int32_t owner = 0;
  std::string error;
  std::atomic<bool> done{false};
};
using OperationPtr = std::shared_ptr<Operation>;

}  // namespace

// Where messages to one node meet the receives that the node has posted. Of one (sender, tag) at most one of the two
// queues holds anything. Copies are made under the mutex, so that withdraw() knows that none is under way.
class InProcessFabric::Node {
 public:
  // Completes `operation` and a waiting one of the other side; returns the owner of the latter, or -1.
  int32_t post(int32_t from, uint32_t tag, const OperationPtr& operation) {
    std::lock_guard lock(mutex_);
    if (gone_.contains(operation->owner)) return -1;
    const std::pair key(from, tag);
    const bool is_send = operation->in == nullptr;
    auto [at, is_new] = meetings_.try_emplace(key);
    std::deque<OperationPtr>& others = is_send ? at->second.receives : at->second.sends;
    if (others.empty()) {
      (is_send ? at->second.sends : at->second.receives).push_back(operation);
      return -1;
    }
    const OperationPtr other = std::move(others.front());
    others.pop_front();
    if (at->second.sends.empty() && at->second.receives.empty()) meetings_.erase(at);
    if (is_send)
      copy(from, tag, *operation, *other);
    else
      copy(from, tag, *other, *operation);
    const int32_t owner = other->owner;
    operation->done.store(true, std::memory_order_release);
    other->done.store(true, std::memory_order_release);
    return owner;
  }

  void withdraw(int32_t owner) {
    std::lock_guard lock(mutex_);
    const auto is_owned = [owner](const OperationPtr& operation) { return operation->owner == owner; };
    for (auto at = meetings_.begin(); at != meetings_.end();) {
      std::erase_if(at->second.sends, is_owned);
      std::erase_if(at->second.receives, is_owned);
      if (at->second.sends.empty() && at->second.receives.empty())
        at = meetings_.erase(at);
      else
        ++at;
    }
  }

  // What it has posted here, and will, is nobody's.
  void cut_off(int32_t owner) {
    {
      std::lock_guard lock(mutex_);
      gone_.insert(owner);
    }
    withdraw(owner);
  }

  void set_wakeup(std::function<void()> wake) {
    std::lock_guard lock(wake_mutex_);
    wake_ = std::move(wake);
  }
  void wake() {
    std::lock_guard lock(wake_mutex_);
    if (wake_) wake_();
  }

 private:
  struct Meeting {
    std::deque<OperationPtr> sends, receives;
  };
  static void copy(int32_t from, uint32_t tag, const Operation& send, Operation& receive) {
    if (send.size != receive.size) {
      receive.error = "message " + std::to_string(tag) + " from node " + std::to_string(from) + " has " +
                      std::to_string(send.size) + " bytes instead of " + std::to_string(receive.size);
    } else if (send.size != 0) {
      std::memcpy(receive.in, send.out, send.size);
    }
  }

  std::mutex mutex_;
  std::map<std::pair<int32_t, uint32_t>, Meeting> meetings_;  // under mutex_
  std::set<int32_t> gone_;                                    // under mutex_
  std::mutex wake_mutex_;
  std::function<void()> wake_;  // under wake_mutex_
};

class InProcessFabric::Endpoint final : public ControlEndpoint {
 public:
  Endpoint(State& state, int32_t address) : state_(state), address_(address) {}
  void send(int32_t to, Message message) override;
  Inbox& inbox() override { return inbox_; }
  void cut_off() { is_cut_off_.store(true); }
  int64_t messages_sent() const override { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  State& state_;
  int32_t address_;
  Inbox inbox_;
  std::atomic<bool> is_cut_off_{false};
  std::atomic<int64_t> messages_{0}, bytes_{0};
};

struct InProcessFabric::State {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<Endpoint>> endpoints;  // the controller's, then the nodes'

  Endpoint& endpoint(int32_t address) {
    DTORCH_CHECK(address >= kController && address < static_cast<int32_t>(nodes.size()),
                 "address " + std::to_string(address));
    return *endpoints[static_cast<size_t>(address + 1)];
  }
  Node& node(int32_t number) {
    DTORCH_CHECK(number >= 0 && number < static_cast<int32_t>(nodes.size()), "node " + std::to_string(number));
    return *nodes[static_cast<size_t>(number)];
  }
};

void InProcessFabric::Endpoint::send(int32_t to, Message message) {
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(size_of_message(message), std::memory_order_relaxed);
  Endpoint& receiver = state_.endpoint(to);
  if (!is_cut_off_.load() && !receiver.is_cut_off_.load()) receiver.inbox_.push({address_, std::move(message)});
}

class InProcessFabric::NodeTransport final : public Transport {
 public:
  NodeTransport(std::shared_ptr<State> state, int32_t node) : state_(std::move(state)), node_(node) {}
  ~NodeTransport() override {
    set_wakeup(nullptr);
    withdraw();
  }

  int32_t node() const override { return node_; }
  // Owners aren't needed: a copy is never under way outside of the peer's lock.
  Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer, Owner) override {
    auto operation = std::make_shared<Operation>();
    operation->out = buffer.data();
    messages_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(static_cast<int64_t>(buffer.size()), std::memory_order_relaxed);
    return start(to, node_, tag, std::move(operation), buffer.size());
  }
  Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer, Owner) override {
    // An empty buffer may have no address, by which the two sides are told apart.
    static std::byte nothing;
    auto operation = std::make_shared<Operation>();
    operation->in = buffer.empty() ? &nothing : buffer.data();
    return start(node_, from, tag, std::move(operation), buffer.size());
  }
  bool test(Request request) override {
    const auto at = requests_.find(request);
    DTORCH_CHECK(at != requests_.end(), "request " + std::to_string(request) + " isn't under way");
    if (!at->second->done.load(std::memory_order_acquire)) return false;
    const OperationPtr operation = std::move(at->second);
    requests_.erase(at);
    ++completed_;
    if (!operation->error.empty()) throw RuntimeFault(operation->error);
    return true;
  }
  bool needs_polling() const override { return false; }
  // Tags tell epochs apart (transfer_tag).
  void begin_epoch(uint32_t) override {
    withdraw();
    requests_.clear();
  }
  void set_wakeup(std::function<void()> wake) override { state_->node(node_).set_wakeup(std::move(wake)); }
  uint64_t completed() const override { return completed_; }
  int64_t messages_sent() const override { return messages_.load(std::memory_order_relaxed); }
  int64_t bytes_sent() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  void withdraw() {
    for (const auto& node : state_->nodes) node->withdraw(node_);
  }
  Request start(int32_t to, int32_t from, uint32_t tag, OperationPtr operation, size_t size) {
    DTORCH_CHECK(tag < kMaxTag, "tag " + std::to_string(tag));
    operation->size = size;
    operation->owner = node_;
    const int32_t woken = state_->node(to).post(from, tag, operation);
    if (woken >= 0) {
      // Both sides are complete now, and whoever posted this one may not look before it is woken.
      state_->node(woken).wake();
      if (woken != node_) state_->node(node_).wake();
    }
    requests_.emplace(++last_request_, std::move(operation));
    return last_request_;
  }

  std::shared_ptr<State> state_;
  int32_t node_;
  std::unordered_map<Request, OperationPtr> requests_;
  Request last_request_ = 0;
  uint64_t completed_ = 0;
  std::atomic<int64_t> messages_{0}, bytes_{0};
};

InProcessFabric::InProcessFabric(int32_t num_nodes) : state_(std::make_shared<State>()) {
  DTORCH_CHECK(num_nodes >= 1, "num_nodes is " + std::to_string(num_nodes));
  for (int32_t node = 0; node < num_nodes; ++node) state_->nodes.push_back(std::make_unique<Node>());
  for (int32_t address = kController; address < num_nodes; ++address) {
    state_->endpoints.push_back(std::make_unique<Endpoint>(*state_, address));
  }
}
InProcessFabric::~InProcessFabric() = default;

int32_t InProcessFabric::num_nodes() const { return static_cast<int32_t>(state_->nodes.size()); }
ControlEndpoint& InProcessFabric::control(int32_t address) { return state_->endpoint(address); }
void InProcessFabric::cut_off(int32_t node) {
  state_->endpoint(node).cut_off();
  for (const auto& other : state_->nodes) other->cut_off(node);
}
std::unique_ptr<Transport> InProcessFabric::make_transport(int32_t node) {
  state_->node(node);
  return std::make_unique<NodeTransport>(state_, node);
}

}  // namespace dtorch
