#include "tests/comm/transfer_cluster.h"

#include <gtest/gtest.h>

#include "runtime/comm/helper_threads.h"

namespace dtorch {

class Exchange::NodeTransfer final : public Transfer {
 public:
  NodeTransfer(Exchange& exchange, int32_t node, uint64_t number)
      : Transfer(exchange.plans_[static_cast<size_t>(node)], 1, number), exchange_(exchange), node_(node) {}

 protected:
  bool sources_ready() override { return exchange_.ready_[static_cast<size_t>(node_)].load(std::memory_order_acquire); }
  NativeTensor source(int64_t device) override {
    const auto at = exchange_.values_.find(device);
    return at == exchange_.values_.end() ? NativeTensor() : at->second;
  }
  std::string source_error(int64_t device) override {
    const auto at = exchange_.errors_.find(device);
    return at == exchange_.errors_.end() ? "" : at->second;
  }
  HelperThreads* helpers() override { return &helpers_; }
  void deliver(int64_t device, NativeTensor value, const std::string& error) override {
    Delivery delivery{{}, {}, error};
    EXPECT_EQ(static_cast<bool>(value), error.empty());
    if (value) {
      delivery.local_shape = value.local_shape();
      const NativeTensor packed = value.contiguous();
      delivery.bytes.assign(packed.data(), packed.data() + packed.num_bytes());
    }
    std::lock_guard lock(exchange_.mutex_);
    EXPECT_TRUE(exchange_.deliveries_.emplace(device, std::move(delivery)).second) << "device " << device << " twice";
  }

 private:
  Exchange& exchange_;
  int32_t node_;
  HelperThreads helpers_{2};
};

Exchange::Exchange(const TensorMeta* from, const TensorMeta* to, const DeviceBinding& binding, FoldOrder order,
                   const DirectParts& direct)
    : from_(from), to_(to), ready_(static_cast<size_t>(binding.num_nodes)) {
  const RedistributePlan plan = make_redistribute_plan(from, to);
  for (int32_t node = 0; node < binding.num_nodes; ++node)
    plans_.push_back(lower_plan(plan, binding, node, order, direct));
}

Cluster::Cluster(int64_t num_devices, int32_t num_nodes)
    : binding_(block_binding(num_devices, num_nodes)), fabric_(num_nodes) {
  for (int32_t node = 0; node < num_nodes; ++node) {
    threads_.push_back(std::make_unique<CommThread>(fabric_.make_transport(node), std::vector<ProgressSource*>{},
                                                    [this](std::exception_ptr failure) {
                                                      std::lock_guard lock(mutex_);
                                                      failure_ = failure;
                                                    }));
  }
}

Cluster::~Cluster() = default;

void Cluster::submit(Exchange& exchange, uint64_t number) {
  exchange.tasks_.clear();
  for (int32_t node = 0; node < binding_.num_nodes; ++node) {
    exchange.tasks_.emplace_back(new Exchange::NodeTransfer(exchange, node, number));
    threads_[static_cast<size_t>(node)]->submit(exchange.tasks_.back());
  }
}

void Cluster::make_ready(Exchange& exchange, int32_t node) {
  exchange.ready_[static_cast<size_t>(node)].store(true, std::memory_order_release);
  threads_[static_cast<size_t>(node)]->wake(std::move(exchange.tasks_[static_cast<size_t>(node)]));
}

bool Cluster::wait() {
  bool orderly = true;
  for (auto& thread : threads_) orderly &= thread->stop_within(std::chrono::seconds(60));
  std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  return orderly;
}

int64_t Cluster::bytes_sent() const {
  int64_t bytes = 0;
  for (const auto& thread : threads_) bytes += thread->transport()->bytes_sent();
  return bytes;
}
int64_t Cluster::messages_sent() const {
  int64_t messages = 0;
  for (const auto& thread : threads_) messages += thread->transport()->messages_sent();
  return messages;
}

}  // namespace dtorch
