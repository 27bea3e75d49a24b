#include "runtime/cuda/nccl_communicator.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/cuda_stream.h"

namespace dtorch::cuda {
namespace {

// Calls of a group that the thread has under way: NCCL does them at its end.
thread_local int group_depth = 0;
thread_local std::vector<NcclApi::Comm> group_members;

cudaStream_t stream_of(DeviceStream& stream) {
  auto* cuda_stream = dynamic_cast<CudaStream*>(&stream);
  DTORCH_CHECK(cuda_stream != nullptr, "a stream of another kind of device");
  cuda_stream->use();
  return cuda_stream->get();
}

std::string words_of(const NcclApi& api, NcclApi::Comm comm, int code) {
  std::string text = api.error_string(code);
  const char* const last = api.last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return text;
}

// Until NCCL has finished with a communicator, or patience is over. NCCL has nothing to wait on but this question.
int wait_until_done(const NcclApi& api, NcclApi::Comm comm, const CommunicatorFactory::Patience& patience) {
  constexpr auto kLongest = std::chrono::microseconds(200);
  const auto begin = std::chrono::steady_clock::now();
  auto pause = std::chrono::microseconds(1);
  int state = NcclApi::kInProgress;
  while (true) {
    const int code = api.async_error(comm, &state);
    if (code != NcclApi::kSuccess) return code;
    if (state != NcclApi::kInProgress) return state;
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (patience.deadline_s > 0 && passed.count() > patience.deadline_s) return NcclApi::kInProgress;
    if (patience.is_over && patience.is_over()) return NcclApi::kInProgress;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongest);
  }
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclApi& api, NcclApi::Comm comm, int32_t rank, int32_t num_ranks,
                                   CudaAccelerator& accelerator, CommunicatorFactory::Patience patience)
    : api_(api),
      rank_(rank),
      num_ranks_(num_ranks),
      accelerator_(accelerator),
      patience_(std::move(patience)),
      comm_(comm) {}

// Its work has run: whoever owns it has seen to that. What NCCL can't end in order is ended at once.
NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  int code = api_.finalize(comm_);
  if (code == NcclApi::kInProgress) code = wait_until_done(api_, comm_, patience_);
  static_cast<void>(code == NcclApi::kSuccess ? api_.destroy(comm_) : api_.abort(comm_));
}

void NcclCommunicator::finish(int code, const char* call) {
  if (group_depth > 0) {
    if (code == NcclApi::kSuccess || code == NcclApi::kInProgress) {
      group_members.push_back(comm_);
      return;
    }
  } else if (code == NcclApi::kInProgress) {
    code = wait_until_done(api_, comm_, patience_);
  }
  if (code == NcclApi::kSuccess) return;
  if (code == NcclApi::kInProgress)
    throw RuntimeFault(std::string(call) + ": another rank hasn't come within the deadline");
  throw RuntimeFault(std::string(call) + ": " + words_of(api_, comm_, code));
}

int NcclCommunicator::reduction(DType dtype, ReduceOp reduce) const {
  const std::optional<int> number = nccl_reduction(dtype, reduce);
  DTORCH_CHECK(number.has_value(), std::string("NCCL can't fold ") + name_of(dtype));
  return *number;
}

template <class F, class... A>
void NcclCommunicator::enqueue(DeviceStream& stream, const char* name, F* function, A... arguments) {
  const cudaStream_t on = stream_of(stream);
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw RuntimeFault("collectives of this Graph have been cancelled");
  finish(function(arguments..., comm_, on), name);
}

void NcclCommunicator::all_reduce(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                                  DType dtype, ReduceOp reduce) {
  enqueue(stream, "ncclAllReduce", api_.all_reduce, send, receive, static_cast<size_t>(count), nccl_type(dtype),
          reduction(dtype, reduce));
}

void NcclCommunicator::all_gather(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                                  DType dtype) {
  const NcclElements elements = nccl_elements(dtype, count);
  enqueue(stream, "ncclAllGather", api_.all_gather, send, receive, elements.count, elements.type);
}

void NcclCommunicator::reduce_scatter(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                                      DType dtype, ReduceOp reduce) {
  enqueue(stream, "ncclReduceScatter", api_.reduce_scatter, send, receive, static_cast<size_t>(count), nccl_type(dtype),
          reduction(dtype, reduce));
}

void NcclCommunicator::broadcast(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                                 DType dtype, int32_t root) {
  const NcclElements elements = nccl_elements(dtype, count);
  enqueue(stream, "ncclBroadcast", api_.broadcast, send, receive, elements.count, elements.type, root);
}

void NcclCommunicator::send(DeviceStream& stream, const std::byte* data, int64_t count, DType dtype, int32_t to) {
  const NcclElements elements = nccl_elements(dtype, count);
  enqueue(stream, "ncclSend", api_.send, data, elements.count, elements.type, to);
}

void NcclCommunicator::receive(DeviceStream& stream, std::byte* data, int64_t count, DType dtype, int32_t from) {
  const NcclElements elements = nccl_elements(dtype, count);
  enqueue(stream, "ncclRecv", api_.receive, data, elements.count, elements.type, from);
}

std::optional<std::string> NcclCommunicator::failure() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return "cancelled";
  int state = NcclApi::kSuccess;
  const int code = api_.async_error(comm_, &state);
  if (code != NcclApi::kSuccess) return words_of(api_, comm_, code);
  if (state == NcclApi::kSuccess || state == NcclApi::kInProgress) return std::nullopt;
  return words_of(api_, comm_, state);
}

void NcclCommunicator::cancel() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) static_cast<void>(api_.abort(std::exchange(comm_, nullptr)));
}

std::unique_ptr<Communicator> NcclCommunicator::split(int32_t colour, int32_t key) {
  constexpr int kNoColour = -1;
  if (api_.split == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw RuntimeFault("collectives of this Graph have been cancelled");
  NcclApi::Comm part = nullptr;
  NcclApi::Config config;
  finish(api_.split(comm_, colour < 0 ? kNoColour : colour, key, &part, &config), "ncclCommSplit");
  if (part == nullptr) return nullptr;
  const int code = wait_until_done(api_, part, patience_);
  if (code != NcclApi::kSuccess) {
    const std::string words = words_of(api_, part, code);
    static_cast<void>(api_.abort(part));
    throw RuntimeFault("ncclCommSplit: " + words);
  }
  int rank = 0, num_ranks = 0;
  if (api_.user_rank(part, &rank) != NcclApi::kSuccess || api_.count(part, &num_ranks) != NcclApi::kSuccess)
    throw RuntimeFault("ncclCommSplit: NCCL doesn't say which rank this is");
  return std::make_unique<NcclCommunicator>(api_, part, rank, num_ranks, accelerator_, patience_);
}

const NcclApi& NcclFactory::api() const {
  if (api_ == nullptr) throw RuntimeFault(problem_);
  return *api_;
}

CommunicatorFactory::Id NcclFactory::new_id() {
  NcclApi::Id id;
  const int code = api().get_unique_id(&id);
  if (code != NcclApi::kSuccess) throw RuntimeFault(std::string("ncclGetUniqueId: ") + api().error_string(code));
  Id bytes;
  static_assert(sizeof bytes == sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

std::unique_ptr<Communicator> NcclFactory::join(const Id& id, int32_t rank, int32_t num_ranks, Accelerator& accelerator,
                                                const Patience& patience) {
  auto* gpu = dynamic_cast<CudaAccelerator*>(&accelerator);
  DTORCH_CHECK(gpu != nullptr, "an accelerator of another kind");
  CudaStream::forget_used();
  DTORCH_CUDA(cudaSetDevice(gpu->device()));
  NcclApi::Id own;
  std::memcpy(&own, id.data(), sizeof own);
  NcclApi::Config config;
  NcclApi::Comm comm = nullptr;
  int code = api().init_rank(&comm, num_ranks, own, rank, &config);
  if (code == NcclApi::kInProgress || (code == NcclApi::kSuccess && comm != nullptr))
    code = wait_until_done(api(), comm, patience);
  if (code == NcclApi::kSuccess)
    return std::make_unique<NcclCommunicator>(api(), comm, rank, num_ranks, *gpu, patience);
  const std::string words = code == NcclApi::kInProgress
                                ? "not all " + std::to_string(num_ranks) + " ranks have joined within " +
                                      std::to_string(patience.deadline_s) + " s"
                                : words_of(api(), comm, code);
  if (comm != nullptr) static_cast<void>(api().abort(comm));
  throw RuntimeFault("ncclCommInitRankConfig, rank " + std::to_string(rank) + ": " + words);
}

void NcclFactory::group_begin() {
  const int code = api().group_start();
  if (code != NcclApi::kSuccess) throw RuntimeFault(std::string("ncclGroupStart: ") + api().error_string(code));
  ++group_depth;
}

void NcclFactory::group_end() {
  DTORCH_CHECK(group_depth > 0, "the end of a group that wasn't begun");
  --group_depth;
  int code = api().group_end();
  if (group_depth > 0) return;
  const std::vector<NcclApi::Comm> members = std::move(group_members);
  group_members.clear();
  std::string words = code == NcclApi::kSuccess || code == NcclApi::kInProgress ? "" : api().error_string(code);
  // Without a deadline of its own: whoever watches the communicators cancels them.
  for (NcclApi::Comm comm : members) {
    if (!words.empty()) break;
    code = wait_until_done(api(), comm, {});
    if (code != NcclApi::kSuccess) words = words_of(api(), comm, code);
  }
  if (!words.empty()) throw RuntimeFault("ncclGroupEnd: " + words);
}

}  // namespace dtorch::cuda
