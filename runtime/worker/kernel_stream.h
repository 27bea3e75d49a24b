// KernelStream: a thread that walks pieces and runs its device's part of every operator, in order. It alone owns the
// device's operand tables, so operators need no lock, no count and no allocation. It sleeps when nothing is there to
// do, and when the next operator needs a value that a transfer hasn't delivered yet.
//
// A device with several compute streams (compute_streams.cc) has one such thread that only walks: it hands every call
// as a StreamTask, with handles of its inputs, to the KernelStream of the call's stream, which has no tables. What a
// task will make is on its way until then, as what a transfer brings.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "runtime/graph/slot_map.h"
#include "runtime/worker/device_graph.h"
#include "runtime/worker/device_queue.h"
#include "runtime/worker/fused_run.h"
#include "runtime/worker/kept_value.h"
#include "runtime/worker/piece_run.h"
#include "runtime/worker/stream_observer.h"

namespace dtorch {

struct StreamTask;

class KernelStream {
 public:
  // local_index: of the device on this node. The backend outlives the stream. Starts the device's other threads, too.
  KernelStream(std::shared_ptr<NodeContext> node, DeviceBackend& backend, size_t local_index, int64_t device);
  ~KernelStream();  // stop()
  KernelStream(const KernelStream&) = delete;
  KernelStream& operator=(const KernelStream&) = delete;

  // By one thread. The stream finishes one part of the run.
  void push(PieceRun* run);
  // Runs `errand` on the stream's thread, between two pieces; not when the stream has been stopped. Any thread.
  void run_between(std::function<void()> errand);
  // What the device holds. On the stream's thread, in an errand, as the next four.
  DeviceMemory memory() const;
  void start_profile();
  DeviceProfile profile() const;
  // What all Graphs' slots hold; values that are on their way stay shared with it.
  KeptPart kept();
  // Puts values into slots that are empty; numbers: dense ones of the Graphs.
  void restore(const KeptPart& part, const std::unordered_map<GraphId, size_t>& numbers);
  // Runs what was pushed (without kernels when the node is aborting), then ends the thread. Idempotent.
  void stop();
  // After NodeContext::aborting was set: a stream that waits for a transfer goes on.
  void wake() { parker_->wake(); }
  const std::shared_ptr<Parker>& parker() const { return parker_; }
  const std::shared_ptr<DeviceQueue>& queue() const { return queue_; }  // null: kernels are calls

 private:
  struct Table {
    GraphId graph = 0;
    std::vector<const LocalSpec*> specs;
    FusedPlans fused;
    std::vector<Blob> slots;
    // Of the instance of a template under way (replay.cc).
    std::vector<Blob> names;
    std::vector<OperandId> slot_of_name;
  };
  struct Call;
  // Calls, and where their operands lie.
  struct CallList {
    Blob* blobs;
    const LogicalGraph& graph;
    std::span<const Operator> operators;
    const LocalSpec* const* specs;
    bool specs_by_call;  // else by OperatorSpec::id
    const Scalar* scalars;
    FusedPlans& fused;
    FusedPlans::PlanPtr* plans;      // of runs, by their first call; null: not kept
    uint32_t first_number = 0;       // of the first of `operators` in its piece or replay
    DeviceGraphs* graphs = nullptr;  // of a replay: what may run as one; null: nothing
    uint32_t first_call = 0;         // of the replay's calls, in the template
  };

  void loop();
  void execute(PieceRun& run) noexcept;
  void walk(PieceRun& run);
  void replay(PieceRun& run, Table& table);
  void run_calls(PieceRun& run, const CallList& calls);
  void run_calls(Call& call, size_t end);
  // kernel_stream_graph.cc. Stretches of a template as device graphs. False: they have to be walked.
  DeviceGraphs* graphs_of(const TemplateBody& body, TemplatePlan::Device& device);
  bool run_as_graph(Call& call);
  struct Capture;
  std::optional<GraphFallback> settle_graph_inputs(const Call& call, GraphStretch& stretch);
  std::optional<GraphFallback> misfit(const Call& call, GraphStretch& stretch);
  bool capture_stretch(const Call& call, GraphStretch& stretch, DeviceGraphs& graphs);
  void record_calls(const Call& call, const GraphStretch& stretch, Capture& capture, CapturedStretch& captured);
  CapturedStretch::Input place_of(const NativeTensor& value, const GraphStretch::Input& input);
  void note_outputs(const Call& call, const GraphStretch& stretch, CapturedStretch& captured);
  std::optional<GraphFallback> launch_graph(const Call& call, GraphStretch& stretch);
  void hand_out_results(const Call& call, const GraphStretch& stretch, const std::vector<NativeTensor>& results,
                        const PoisonPtr& poison);
  bool walk_instead(GraphFallback reason);
  PoisonPtr refuse_capture(const Call& call, const std::string& why);
  // compute_streams.cc. Of the walking thread of a device with several streams:
  void hand_out_calls(PieceRun& run, const CallList& calls);
  void hand_out(Call& call, size_t num_calls);
  void take_inputs_of(StreamTask& task, const Call& call);
  void expect_outputs_of(StreamTask& task, const Call& call);
  void push_task(size_t stream, std::unique_ptr<StreamTask> task);
  void wait_for_tasks();
  std::vector<std::unique_ptr<KernelStream>> make_streams() const;
  // Of a compute stream:
  KernelStream(const KernelStream& walker, size_t stream);
  void run_task(StreamTask& task) noexcept;
  void deliver_outputs(StreamTask& task);
  void observe_run(const PieceRun& run);
  void count_kernels() { statistics_.kernels_run.fetch_add(std::exchange(kernels_run_, 0), std::memory_order_relaxed); }
  void execute_call(Call& call);
  void execute_observed(Call& call);
  // fused_call.cc. Takes the run that begins with this call, and goes on to the call after it.
  void execute_run(Call& call);
  FusedPlans::PlanPtr plan_of(const Call& call, size_t num_calls);
  // False, and nothing has happened but that values have arrived: the calls have to be run one by one.
  bool run_fused(const Call& first, FusedCalls& fused);
  bool take_fused_inputs(const Call& first, const FusedCalls& fused);
  void take_fused_outputs(const Call& first, const FusedCalls& fused);
  void give_back_fused_outputs();
  void finish_fused(const Call& first, const FusedCalls& fused, const PoisonPtr& poison,
                    const std::vector<NativeTensor>& expected);
  void observe_fused(const Call& first, const FusedCalls& fused);
  static std::vector<NativeTensor> results_one_by_one(const Call& first, const FusedCalls& fused,
                                                      std::span<const Scalar> scalars);
  void run_kernel(Call& call);
  // kernel_stream_queue.cc: of a device that runs behind the host.
  void launch_kernel(Call& call, std::span<NativeTensor> outputs);
  void launch_feed(const Call& call, std::span<NativeTensor> outputs, const std::byte* feed);
  void provide_from_queue(const Call& call, PieceRun::Move& move);
  void run_collectives(Call& call);
  DeviceMove::Part enqueue_collectives(const Call& call, DeviceMove::Part source);
  DeviceMove::Part input_of_move(const Call& call);
  void read_from_queue(const Call& call, uint64_t read);
  void take_from_arrival(const Call& call, const Arrival& arrival, Blob& blob);
  void take_to_host(KeptPart& part);
  // With several compute streams behind the host who holds a handle doesn't tell who still reads.
  bool may_take_over() const { return !queue_ || queue_->num_streams() == 1; }
  DeviceStream& device_stream() { return queue_->compute(stream_); }
  void report_device_failures();
  // The stream's part of a run ends when the device has run it.
  void finish_part(PieceRun* run);
  // prepared_call.cc. False, and nothing has happened: run_kernel() has to do it.
  bool run_prepared(Call& call);
  // Of LocalSpec::on_memory: pointers are all that it needs.
  struct OnMemory;
  bool run_on_memory(const Call& call);
  void run_on_new_memory(const Call& call, const OnMemory& inputs, Blob& result);
  bool run_kernel_on(const Call& call, ElementwisePrepared& kernel, std::byte* output, const OnMemory& inputs);
  void drop_dying(const OnMemory& inputs, const Blob* kept);
  [[gnu::cold]] void fail_prepared(const Call& call, const std::exception_ptr& error);
  // Of a value that is there: sets `data`. False when it isn't contiguous.
  static bool find_data(Blob& blob);
  // For prepared_check.h: the results of the operator's kernel, on inputs that stay as they are.
  static std::vector<NativeTensor> kernel_results(const Call& call, std::span<const NativeTensor* const> inputs);
  std::vector<NativeTensor> expected_results(const Call& call) const;
  // Of a call with effects outside, in an epoch before this one; its results are zeros then.
  bool was_done(const Call& call) const;
  void set_zeros_on_device(const Call& call, std::span<NativeTensor> outputs);
  void run_alias(Call& call);
  void share_values(Call& call);
  void run_move(Call& call);
  void expect_arrivals(Call& call);
  void run_read(Call& call);
  void check_outputs(const Call& call, std::span<const NativeTensor> outputs) const;

  // Moves the inputs' values out of the table, waiting for transfers. Returns the first poison among them.
  PoisonPtr take_inputs(Call& call);
  void put_back_inputs(Call& call);
  void release_inputs(const Call& call);
  void poison_outputs(const Call& call, const PoisonPtr& poison);
  void settle(Blob& blob, const Call& call, size_t input);
  PoisonPtr fail(const Call& call, const std::exception_ptr& error);
  DeviceMemory memory_at(const Call& call) const;  // with the inputs that the call holds
  // With values that aren't in the tables at the moment.
  DeviceMemory memory_with(const std::vector<std::pair<LiveTensor, const NativeTensor*>>& held) const;
  const std::byte* feed_of(Call& call);
  void done_with_feed(Call& call);
  // Empties a slot; the value's memory waits for the next result of its kind when nobody else holds it.
  void drop(Blob& blob) {
    if (blob.kind && blob.value && blob.value.is_sole_owner()) pool_.give_back(*blob.kind, std::move(blob.value));
    blob.reset();
  }
  bool aborting() const { return node_->aborting.load(std::memory_order_relaxed); }

  const std::shared_ptr<NodeContext> node_;
  DeviceBackend& backend_;
  const size_t local_index_;
  const int64_t device_;
  DeviceStatistics& statistics_;
  const size_t stream_;                       // which compute stream it is, or the first
  const std::shared_ptr<DeviceQueue> queue_;  // null: kernels are calls
  TensorPool& pool_;
  StreamPosition unseen_;  // of a thread that only walks
  StreamPosition& position_;
  const std::shared_ptr<Parker> parker_;

  std::atomic<bool> available_{false};
  std::mutex mutex_;
  std::vector<PieceRun*> pushed_;                   // under mutex_
  std::vector<std::function<void()>> errands_;      // under mutex_
  std::vector<std::unique_ptr<StreamTask>> tasks_;  // under mutex_
  bool stop_ = false;                               // under mutex_

  std::vector<Table> tables_;  // the thread's, as all that follows; by PieceRun::graph
  std::vector<NativeTensor> inputs_, outputs_;
  struct FusedOutput {
    NativeTensor value;
    TensorPool::Kind* kind = nullptr;
    Blob* overwritten = nullptr;  // whose value it was
  };
  std::vector<FusedOutput> fused_outputs_;
  std::vector<std::byte*> fused_inputs_, fused_results_;  // first elements
  std::vector<std::byte> scratch_;
  StreamObserver observer_;
  int64_t kernels_run_ = 0;
  Capture* capture_ = nullptr;                                // under way
  bool broken_ = false;                                       // its table can't be kept any more; reported
  std::atomic<int64_t> tasks_left_{0};                        // of a compute stream: handed to it and not done
  const bool is_one_of_several_ = false;                      // a compute stream that another thread hands tasks to
  const std::vector<std::unique_ptr<KernelStream>> streams_;  // that this thread hands tasks to
  // A compute stream's: places of a task's operands while it runs, and the plans of runs by PieceRun::graph.
  std::vector<Blob> places_;
  std::vector<FusedPlans> plans_;
  SlotMap made_;  // the walking thread's: slots that calls of the task fill
  std::thread thread_;
};

}  // namespace dtorch
