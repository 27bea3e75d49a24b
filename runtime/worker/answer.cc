#include "runtime/worker/answer.h"

#include <unistd.h>

#include <functional>
#include <mutex>
#include <thread>

#include "runtime/base/machine.h"

namespace dtorch {
namespace {

// The rest is only counted: what holds up a job is among the oldest.
constexpr size_t kMaxTransfers = 64;

Answer new_answer(const NodeContext& node, const Inspect& question) {
  return {.epoch = node.config.epoch, .node = node.node, .number = question.number, .machine = machine_number()};
}

void send(NodeContext& node, Answer& answer) {
  answer.clock_ns = trace_clock_ns();
  node.control.send(kController, encode(answer));
}

void send_status(const std::shared_ptr<NodeContext>& node, Answer answer) {
  for (const DeviceStatistics& device : node->devices) answer.devices.push_back(device.status());
  node->comm.inspect([node, answer = std::move(answer)](std::span<const IntrusivePtr<CommTask>> tasks) mutable {
    for (const IntrusivePtr<CommTask>& task : tasks) {
      std::optional<TransferStatus> status = task->status();
      if (!status) continue;
      ++answer.num_transfers;
      if (answer.transfers.size() < kMaxTransfers) answer.transfers.push_back(std::move(*status));
    }
    send(*node, answer);
  });
}

TraceTrack track_of(const EventLog<TraceEvent>& log, int64_t device) {
  TraceTrack track{.device = device, .dropped = log.dropped()};
  const size_t size = log.size();
  track.events.reserve(size);
  for (size_t i = 0; i < size; ++i) track.events.push_back(log[i]);
  return track;
}

void send_trace(NodeContext& node, Answer answer) {
  if (const NodeTrace* trace = node.trace.load(std::memory_order_relaxed)) {
    for (size_t i = 0; i < trace->streams.size(); ++i)
      answer.tracks.push_back(track_of(trace->streams[i], node.devices[i / node.num_streams()].device));
    answer.tracks.push_back(track_of(trace->comm, -1));
  }
  send(node, answer);
}

// Every stream adds its part, on its thread; the last one sends.
class Gathering {
 public:
  using AddPart = std::function<void(KernelStream&, size_t local_index, Answer&)>;
  Gathering(std::shared_ptr<NodeContext> node, Answer answer, size_t num_streams, AddPart add)
      : node_(std::move(node)), answer_(std::move(answer)), left_(num_streams), add_(std::move(add)) {}
  void part(KernelStream& stream, size_t local_index) {
    std::lock_guard lock(mutex_);
    add_(stream, local_index, answer_);
    if (--left_ == 0) send(*node_, answer_);
  }

 private:
  const std::shared_ptr<NodeContext> node_;
  std::mutex mutex_;
  Answer answer_;
  size_t left_;
  const AddPart add_;
};

void gather(const std::shared_ptr<NodeContext>& node, const std::vector<std::unique_ptr<KernelStream>>& streams,
            Answer answer, Gathering::AddPart add) {
  if (streams.empty()) return send(*node, answer);
  auto gathering = std::make_shared<Gathering>(node, std::move(answer), streams.size(), std::move(add));
  for (size_t i = 0; i < streams.size(); ++i) {
    KernelStream* stream = streams[i].get();
    stream->run_between([gathering, stream, i] { gathering->part(*stream, i); });
  }
}

}  // namespace

void say_hello(NodeContext& node, DeviceBackend& backend) {
  Hello hello;
  hello.node = node.node;
  char host[256] = {};
  hello.host = gethostname(host, sizeof host - 1) == 0 ? host : "unknown";
  hello.pid = getpid();
  hello.versions = std::string("DTorch ") + DTORCH_VERSION;
  // All nodes have to be alike in this, too, since it decides how data moves between them.
  if (const AcceleratorLibrary* library = backend.library()) {
    hello.versions += ", " + std::to_string(library->num_accelerators()) + " accelerators (" + library->name() + ")";
  }
  hello.registry_hash = OperatorRegistry::global().hash();
  hello.num_cores = static_cast<int32_t>(std::thread::hardware_concurrency());
  node.control.send(kController, encode(hello));
}

void answer(const std::shared_ptr<NodeContext>& node, const std::vector<std::unique_ptr<KernelStream>>& streams,
            const Inspect& question) {
  Answer answer = new_answer(*node, question);
  switch (question.aspect) {
    case Aspect::kStatus:
      return send_status(node, std::move(answer));
    case Aspect::kClock:
      return send(*node, answer);
    case Aspect::kMemory:
      answer.memory.resize(streams.size());
      return gather(node, streams, std::move(answer),
                    [](KernelStream& stream, size_t i, Answer& all) { all.memory[i] = stream.memory(); });
    case Aspect::kStartProfile:
      return gather(node, streams, std::move(answer),
                    [](KernelStream& stream, size_t, Answer&) { stream.start_profile(); });
    case Aspect::kProfile:
      answer.profiles.resize(streams.size());
      return gather(node, streams, std::move(answer),
                    [](KernelStream& stream, size_t i, Answer& all) { all.profiles[i] = stream.profile(); });
    case Aspect::kStartTrace:
      node->start_trace();
      return send(*node, answer);
    case Aspect::kTrace:
      return send_trace(*node, std::move(answer));
  }
}

}  // namespace dtorch
