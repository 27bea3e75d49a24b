#include "runtime/comm/slow_transport.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <utility>

namespace dtorch {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<std::chrono::nanoseconds> message_time{std::chrono::nanoseconds(0)};

class SlowTransport final : public Transport {
 public:
  SlowTransport(std::unique_ptr<Transport> inner, std::chrono::nanoseconds each)
      : inner_(std::move(inner)), each_(each) {}
  int32_t node() const override { return inner_->node(); }
  Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer, Owner owner) override {
    return inner_->send(to, tag, buffer, std::move(owner));
  }
  Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer, Owner owner) override {
    const Request request = inner_->receive(from, tag, buffer, std::move(owner));
    received_.emplace(request, Clock::time_point::max());
    return request;
  }
  bool test(Request request) override {
    const auto at = received_.find(request);
    if (at == received_.end()) return inner_->test(request);
    const Clock::time_point now = Clock::now();
    if (at->second == Clock::time_point::max()) {
      if (!inner_->test(request)) return false;
      at->second = free_at_ = std::max(now, free_at_) + each_;
    }
    if (now < at->second) return false;
    received_.erase(at);
    return true;
  }
  void begin_epoch(uint32_t epoch) override {
    received_.clear();
    inner_->begin_epoch(epoch);
  }
  void tidy() override { inner_->tidy(); }
  bool needs_polling() const override { return true; }
  void set_wakeup(std::function<void()> wake) override { inner_->set_wakeup(std::move(wake)); }
  uint64_t completed() const override { return inner_->completed(); }
  int64_t messages_sent() const override { return inner_->messages_sent(); }
  int64_t bytes_sent() const override { return inner_->bytes_sent(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const std::chrono::nanoseconds each_;
  std::unordered_map<Request, Clock::time_point> received_;  // when they will have come; max(): still on their way
  Clock::time_point free_at_;
};

}  // namespace

void set_message_time(std::chrono::nanoseconds each) { message_time.store(each); }

std::unique_ptr<Transport> slowed(std::unique_ptr<Transport> transport) {
  const std::chrono::nanoseconds each = message_time.load();
  if (each.count() == 0) return transport;
  return std::make_unique<SlowTransport>(std::move(transport), each);
}

}  // namespace dtorch
