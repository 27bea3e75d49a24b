// A stream of a fake device (fake_driver.h). Its values are tensors of the CPU in memory of their own: filled with what
// is no number until their work has run, and again when they die.
#pragma once
#include <atomic>
#include <set>

#include "runtime/accelerator/fake/fake_graph.h"

namespace dtorch::fake {

class Event final : public DeviceEvent {
 public:
  explicit Event(StreamKind of) : kind(of) {}
  bool has_passed() const override { return passed.load(std::memory_order_acquire); }
  const StreamKind kind;  // of the stream that it is of
  std::atomic<bool> passed{false};
};

class Stream final : public DeviceStream {
 public:
  Stream(Driver& driver, StreamKind kind) : driver_(driver), queue_(driver_.open(kind)) {}
  ~Stream() override;

  DeviceEventPtr record() override;
  void wait(const DeviceEventPtr& event) override;
  void call_on_host(std::function<void()> errand) override;
  void synchronize() override;

  NativeTensor allocate(const Shape& local_shape, DType dtype, MemoryCounter* memory) override;
  void share(const NativeTensor& value) override;
  void keep(std::vector<NativeTensor> values) override;

  void copy(const NativeTensor& from, const NativeTensor& to) override;
  void set_zero(const NativeTensor& value) override;
  void fold(std::span<const NativeTensor> parts, ReduceOp reduce, int64_t divisor, const NativeTensor& result) override;
  void launch(const KernelLaunch& call) override;
  std::unique_ptr<FusedKernel> fuse(const FusedProgram& program) override;

  // fake_graph.cc
  void begin_capture() override;
  std::unique_ptr<DeviceGraph> end_capture() override;
  NativeTensor unowned(const NativeTensor& value) override;

  void mark(const StreamMark& mark) override { driver_.set_mark(*queue_, mark); }
  StreamMark marked() const override { return driver_.running(*queue_); }
  void set_failure_handler(FailureHandler handler) override {
    driver_.set_failure_handler(*queue_, std::move(handler));
  }

  // For the communicator: `run` when is_ready() holds.
  void push(std::function<void()> run, std::function<bool()> is_ready) {
    if (is_ready) require_no_capture("a collective");
    driver_.push(*queue_, guarded(std::move(run)), std::move(is_ready));
  }
  Driver& driver() { return driver_; }

 private:
  // What it throws is told as the stream's failure.
  std::function<void()> guarded(std::function<void()> run) const;
  void push(std::function<void()> run) { driver_.push(*queue_, guarded(std::move(run))); }
  void launch_at_once(const KernelLaunch& call);

  Driver& driver_;
  const std::shared_ptr<Driver::Queue> queue_;
  std::set<const void*> graph_memory_;  // that captured work uses; for a planted fault
};

}  // namespace dtorch::fake
