// A job inside this process that loses nodes at chosen places of its stream, for tests of recovery.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dtorch/dtorch.h"
#include "runtime/base/options_table.h"
#include "runtime/comm/comm_thread.h"
#include "runtime/comm/in_process.h"
#include "runtime/controller/main_controller.h"
#include "runtime/worker/sub_controller.h"

namespace dtorch::test {

// Node `node` is gone when rank 0 has sent so many messages with work (pieces, replays, templates, snapshots) to all
// nodes: all of a recovery count too, so that a fault can fall into one.
struct Fault {
  int64_t after = 0;
  int32_t node = 0;
  bool is_silent = false;  // nobody notices
};

class RecoveryJob {
 public:
  using Program = std::function<void(Client&)>;
  RecoveryJob(int32_t nodes, RuntimeOptions options, std::vector<Fault> faults = {});
  ~RecoveryJob();
  // Runs the program; what it throws is kept for failure(). Ends the job.
  void run(const Program& program);
  // What a program threw: "" for nothing.
  const std::string& failure() const { return failure_; }
  const RecoveryStats& stats() const { return stats_; }
  // Messages with work that were sent to all nodes.
  int64_t num_messages() const { return control_->num_work(); }
  // While run() runs.
  int64_t num_snapshots() const { return controller_->recovery_stats().snapshots; }
  const DeviceBinding& binding() const { return controller_->binding(); }
  // All living nodes ended when they were told to.
  bool ended_in_order() const { return ended_in_order_; }
  void kill(int32_t node);
  // In the second epoch, rank 0 sends its n-th message with work only when all nodes that live have said that they have
  // every copy. Before run().
  void hold_second_epoch_for_copies(int64_t at_message) { held_message_ = at_message; }
  // The next so many copies that are to be sent, in this epoch or later, find no memory.
  void have_no_memory_for_copies(int64_t count, uint32_t first_epoch = 1) {
    first_epoch_without_memory_.store(first_epoch);
    without_memory_.store(count);
  }
  int64_t num_copies_without_memory() const { return num_without_memory_.load(); }
  // Copies are sent beside the program, which may be at its end before the first.
  void wait_for_copies_without_memory(int64_t count) const;

 private:
  // The controller's end, which counts and kills.
  class Counting final : public ControlEndpoint {
   public:
    Counting(RecoveryJob& job, ControlEndpoint& below) : job_(job), below_(below) {}
    void send(int32_t to, Message message) override;
    Inbox& inbox() override { return below_.inbox(); }
    void set_lost(int32_t node) override { below_.set_lost(node); }
    int64_t messages_sent() const override { return below_.messages_sent(); }
    int64_t bytes_sent() const override { return below_.bytes_sent(); }
    int64_t num_work() const { return num_work_.load(); }

   private:
    RecoveryJob& job_;
    ControlEndpoint& below_;
    std::atomic<int64_t> num_work_{0};
    int64_t num_in_second_ = 0;  // of the second epoch; under the sequencer's lock
  };
  struct Node {
    std::unique_ptr<ControlEndpoint> control;
    std::unique_ptr<CommThread> comm;
    std::unique_ptr<SubController> worker;
    std::thread thread;
    std::atomic<bool> killed{false};
  };
  // A node's end, which notes what it says of copies, and may have no memory for them.
  class Noting final : public ControlEndpoint {
   public:
    Noting(RecoveryJob& job, ControlEndpoint& below) : job_(job), below_(below) {}
    void send(int32_t to, Message message) override;
    Inbox& inbox() override { return below_.inbox(); }
    void set_lost(int32_t node) override { below_.set_lost(node); }
    int64_t messages_sent() const override { return below_.messages_sent(); }
    int64_t bytes_sent() const override { return below_.bytes_sent(); }

   private:
    RecoveryJob& job_;
    ControlEndpoint& below_;
  };
  void cut_off(int32_t node);
  void wait_for_copies();
  InProcessFabric fabric_;
  const std::vector<Fault> faults_;
  int64_t held_message_ = 0;
  std::atomic<int64_t> num_stored_{0};  // in the second epoch
  std::atomic<int64_t> without_memory_{0}, num_without_memory_{0};
  std::atomic<uint32_t> first_epoch_without_memory_{1};
  std::unique_ptr<Counting> control_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::shared_ptr<MainController> controller_;
  std::string failure_;
  RecoveryStats stats_;
  bool ended_in_order_ = false;
};

}  // namespace dtorch::test
