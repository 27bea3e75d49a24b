#include "tests/launch/recovery_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "io/operators.h"
#include "ops/operator_list.h"
#include "runtime/graph/snapshot.h"
#include "runtime/worker/async_backend.h"

namespace dtorch::test {

namespace {

constexpr double kGoodbyeGraceS = 30;
constexpr auto kPatience = std::chrono::seconds(60);

bool is_work(MessageKind kind) {
  return kind == MessageKind::kPiece || kind == MessageKind::kReplay || kind == MessageKind::kTemplate ||
         kind == MessageKind::kSnapshot;
}

}  // namespace

void RecoveryJob::Counting::send(int32_t to, Message message) {
  const auto is_alive = [](const auto& node) { return !node->killed.load(); };
  const auto first = std::find_if(job_.nodes_.begin(), job_.nodes_.end(), is_alive) - job_.nodes_.begin();
  const bool is_first = to == first && is_work(message.kind);
  if (is_first && message.epoch == 2 && ++num_in_second_ == job_.held_message_) job_.wait_for_copies();
  below_.send(to, std::move(message));
  if (!is_first) return;
  const int64_t count = num_work_.fetch_add(1) + 1;
  for (const Fault& fault : job_.faults_) {
    if (fault.after == count) fault.is_silent ? job_.cut_off(fault.node) : job_.kill(fault.node);
  }
}

void RecoveryJob::Noting::send(int32_t to, Message message) {
  const bool is_of_second = message.kind == MessageKind::kSnapshotStored && message.epoch == 2;
  const bool is_copy = message.kind == MessageKind::kSnapshotPart && decode_snapshot_part(message).is_copy;
  if (is_copy && message.epoch >= job_.first_epoch_without_memory_.load() && job_.without_memory_.fetch_sub(1) > 0) {
    job_.num_without_memory_.fetch_add(1);
    throw std::bad_alloc();
  }
  below_.send(to, std::move(message));
  if (is_of_second) job_.num_stored_.fetch_add(1);
}

RecoveryJob::RecoveryJob(int32_t nodes, RuntimeOptions options, std::vector<Fault> faults)
    : fabric_(nodes), faults_(std::move(faults)) {
  register_builtin_operators();
  register_io_operators();
  for (int32_t n = 0; n < nodes; ++n) nodes_.push_back(std::make_unique<Node>());
  control_ = std::make_unique<Counting>(*this, fabric_.control(kController));
  controller_ = std::make_shared<MainController>(*control_, nodes, options);
  for (int32_t n = 0; n < nodes; ++n) {
    Node& node = *nodes_[static_cast<size_t>(n)];
    node.comm = std::make_unique<CommThread>(fabric_.make_transport(n), std::vector<ProgressSource*>{},
                                             [](std::exception_ptr) { ADD_FAILURE() << "the comm thread failed"; });
    node.control = std::make_unique<Noting>(*this, fabric_.control(n));
    node.worker = std::make_unique<SubController>(n, *node.control, *node.comm, make_backend(options.device, true));
    node.thread = std::thread([&node] { node.worker->run(); });
  }
}

RecoveryJob::~RecoveryJob() = default;

void RecoveryJob::cut_off(int32_t n) {
  if (nodes_.at(static_cast<size_t>(n))->killed.exchange(true)) return;
  fabric_.cut_off(n);
  // It ends by itself; nobody hears of it.
  fabric_.control(n).inbox().push({kController, encode(Shutdown{1, "the test kills it"})});
}

void RecoveryJob::kill(int32_t n) {
  cut_off(n);
  controller_->node_lost(n, "killed by the test");
}

void RecoveryJob::wait_for_copies() {
  const auto num_living = std::ranges::count_if(nodes_, [](const auto& node) { return !node->killed.load(); });
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (num_stored_.load() < num_living && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(num_stored_.load(), num_living) << "nodes that have all copies";
}

void RecoveryJob::wait_for_copies_without_memory(int64_t count) const {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (num_copies_without_memory() < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_EQ(num_copies_without_memory(), count);
}

void RecoveryJob::run(const Program& program) {
  int code = 0;
  try {
    controller_->start();
    Client client(controller_);
    try {
      program(client);
      client.close();
    } catch (...) {
      controller_->fail(std::current_exception());
      throw;
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
    code = 1;
  }
  stats_ = controller_->recovery_stats();
  // So that nobody waits for the goodbye of one that is silent.
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n]->killed.load()) controller_->node_lost(static_cast<int32_t>(n), "killed by the test");
  }
  ended_in_order_ = controller_->shutdown(code, "the test ends", kGoodbyeGraceS);
  for (const std::unique_ptr<Node>& node : nodes_) node->thread.join();
  for (const std::unique_ptr<Node>& node : nodes_) node->comm->stop(true);
  controller_.reset();
  nodes_.clear();
}

}  // namespace dtorch::test
