// The background of a node: its work's answers go to the controller as read data.
#pragma once
#include <atomic>
#include <mutex>

#include "ops/def/background.h"
#include "runtime/comm/endpoint.h"

namespace dtorch {

class NodeBackground final : public Background {
 public:
  // `control` is not owned and isn't used after end().
  NodeBackground(ControlEndpoint& control, int32_t node) : control_(&control), node_(node) {}
  ~NodeBackground() override { end(); }
  // Before the first kernel.
  void set_epoch(uint32_t epoch) { epoch_ = epoch; }
  void answer(uint64_t number, const Box& box, std::vector<std::byte> packed) override;
  bool is_ending() const override { return ending_.load(std::memory_order_acquire); }
  // The job is ending; work is asked to end early, nothing is sent any more. Doesn't wait.
  void silence();
  // Ends the work and waits for it; no kernel runs any more. Idempotent.
  void end();

 private:
  std::mutex mutex_;
  ControlEndpoint* control_;  // under mutex_; null: nothing is sent any more
  const int32_t node_;
  uint32_t epoch_ = 0;
  std::atomic<bool> ending_{false};
};

}  // namespace dtorch
