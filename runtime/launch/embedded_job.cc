// Nodes as threads of this process, over the in-process fabric; see job.h.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/comm/in_process.h"
#include "runtime/comm/slow_transport.h"
#include "runtime/launch/job.h"
#include "runtime/worker/async_backend.h"
#include "runtime/worker/sub_controller.h"

namespace dtorch {

namespace {

constexpr auto kThreadGrace = std::chrono::seconds(2);

// All that a node's threads use. They share it, so that a thread that doesn't end in time can be left behind.
struct LocalNode {
  LocalNode(std::shared_ptr<InProcessFabric> shared_fabric, int32_t number, std::string kind_of_device)
      : fabric(std::move(shared_fabric)), node(number), device(std::move(kind_of_device)) {}

  void report(const std::string& what) {
    fabric->control(node).send(kController,
                               encode(ErrorReport{.epoch = 1, .node = node, .device = -1, .message = what}));
  }
  void serve() {
    try {
      SubController(node, fabric->control(node), *comm, make_backend(device, true)).run();
    } catch (const std::exception& error) {
      report(error.what());
    }
    std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }
  bool wait_ended(std::chrono::nanoseconds grace) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, grace, [&] { return ended; });
  }

  const std::shared_ptr<InProcessFabric> fabric;
  const int32_t node;
  const std::string device;
  std::unique_ptr<CommThread> comm;
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;  // under mutex
};

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  }
}

class EmbeddedJob final : public Job {
 public:
  EmbeddedJob(int32_t num_nodes, std::string device)
      : fabric_(std::make_shared<InProcessFabric>(num_nodes)), device_(std::move(device)) {}
  ~EmbeddedJob() override { finish(false, 1); }

  ControlEndpoint& control() override { return fabric_->control(kController); }
  int32_t num_nodes() const override { return fabric_->num_nodes(); }

  // Nodes report what fails themselves, by message.
  void start(Watchers) override {
    for (int32_t n = 0; n < num_nodes(); ++n) {
      auto node = std::make_shared<LocalNode>(fabric_, n, device_);
      LocalNode* raw = node.get();
      node->comm = std::make_unique<CommThread>(slowed(fabric_->make_transport(n)), std::vector<ProgressSource*>{},
                                                [raw](std::exception_ptr failure) { raw->report(text_of(failure)); });
      threads_.emplace_back([node] { node->serve(); });
      nodes_.push_back(std::move(node));
    }
  }

  bool finish(bool clean, int) override {
    bool all = clean;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!nodes_[n]->wait_ended(kThreadGrace)) {
        // A kernel that doesn't return. The thread keeps what it uses; it ends with the process.
        log_warn("node {} of this process doesn't end; its threads are left behind", n);
        threads_[n].detach();
        leave_behind(std::move(nodes_[n]));
        all = false;
        continue;
      }
      threads_[n].join();
      all &= nodes_[n]->comm->stop_within(kThreadGrace);
    }
    nodes_.clear();
    threads_.clear();
    return all;
  }

 private:
  // Keeps the node for the life of the process: its destructor would wait for its threads.
  static void leave_behind(std::shared_ptr<LocalNode> node) {
    static_cast<void>(new std::shared_ptr<LocalNode>(std::move(node)));
  }

  std::shared_ptr<InProcessFabric> fabric_;
  const std::string device_;
  std::vector<std::shared_ptr<LocalNode>> nodes_;
  std::vector<std::thread> threads_;  // by node
};

}  // namespace

std::unique_ptr<Job> make_embedded_job(int32_t num_nodes, const std::string& device) {
  return std::make_unique<EmbeddedJob>(num_nodes, device);
}

}  // namespace dtorch
