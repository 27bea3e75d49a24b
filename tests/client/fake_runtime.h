// A Runtime without controller and devices: its executors log what they read, check the stream's rules (live operands,
// free slots) and answer reads with 0, 1, 2, ... or with a failure.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/client/link.h"
#include "runtime/client/record_codec.h"

namespace dtorch::testing {

struct LoggedRecord {
  RecordKind kind = RecordKind::kOperator;
  std::string op;  // "" without a spec
  const OperatorSpec* spec = nullptr;
  std::vector<OperandId> inputs, outputs, releases;
  std::vector<Scalar> scalars;
  SourceLine where;
};

class FakeRuntime : public Runtime {
 public:
  explicit FakeRuntime(int64_t num_devices = 8, int32_t num_nodes = 2);
  ~FakeRuntime() override;
  const DeviceBinding& binding() const override { return binding_; }
  void attach(std::shared_ptr<GraphLink> link) override;
  void detach(GraphLink& link) override;
  RuntimeStats stats() override { return {}; }
  bool stop_requested() const override { return false; }
  std::string describe_nodes() override { return "fake"; }

  // Executors stop before the next record until release().
  void hold();
  void release();
  // All reads from now on fail with this.
  void fail_reads(std::exception_ptr error);
  // From the next record on, its executor does nothing but answer reads with this failure.
  void fail_fatally(std::exception_ptr error);
  // Everything executed so far. A flush record's presence in the log means that all before it is there.
  std::vector<LoggedRecord> log() const;
  // Names of the operators in order.
  std::vector<std::string> operators() const;
  std::vector<std::string> violations() const;
  size_t num_live() const;  // operands
  std::shared_ptr<GraphLink> link(size_t i) const { return links_.at(i); }

 private:
  void execute(GraphLink& link);
  void handle(GraphLink& link, RecordReader& reader);
  void fail(GraphLink& link, RecordReader& reader, const std::exception_ptr& failure);
  void check(const LoggedRecord& record);

  const DeviceBinding binding_;
  std::vector<std::shared_ptr<GraphLink>> links_;
  std::map<const GraphLink*, std::thread> threads_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;  // the rest under mutex_
  std::exception_ptr read_failure_, fatal_failure_;
  std::vector<LoggedRecord> log_;
  std::vector<std::string> violations_;
  std::map<GraphId, std::set<OperandId>> live_;
};

}  // namespace dtorch::testing
