#include "runtime/cuda/nccl_api.h"

#include "runtime/gpu/shared_library.h"

namespace dtorch::cuda {
namespace {

constexpr int kInt8 = 0, kUint8 = 1, kInt32Type = 2, kInt64Type = 4, kFloat16Type = 6, kFloat32Type = 7,
              kFloat64Type = 8, kBfloat16Type = 9;

}  // namespace

const NcclApi* NcclApi::find(std::string* problem) {
  struct Found {
    NcclApi api;
    std::string problem;
  };
  static const Found found = [] {
    Found result;
    const SharedLibrary library({"libnccl.so.2"});
    if (!library) {
      result.problem = "NCCL can't be loaded: " + library.error();
      return result;
    }
    NcclApi& api = result.api;
    const auto take = [&]<class F>(F& function, const char* name) {
      function = library.function<F>(name);
      if (function == nullptr) result.problem = std::string("NCCL has no ") + name + "; 2.14 or newer is needed";
    };
    take(api.get_version, "ncclGetVersion");
    take(api.get_unique_id, "ncclGetUniqueId");
    take(api.init_rank, "ncclCommInitRankConfig");
    take(api.user_rank, "ncclCommUserRank");
    take(api.count, "ncclCommCount");
    take(api.finalize, "ncclCommFinalize");
    take(api.destroy, "ncclCommDestroy");
    take(api.abort, "ncclCommAbort");
    take(api.async_error, "ncclCommGetAsyncError");
    take(api.error_string, "ncclGetErrorString");
    take(api.last_error, "ncclGetLastError");
    take(api.all_reduce, "ncclAllReduce");
    take(api.all_gather, "ncclAllGather");
    take(api.reduce_scatter, "ncclReduceScatter");
    take(api.broadcast, "ncclBroadcast");
    take(api.send, "ncclSend");
    take(api.receive, "ncclRecv");
    take(api.group_start, "ncclGroupStart");
    take(api.group_end, "ncclGroupEnd");
    api.split = library.function<decltype(api.split)>("ncclCommSplit");
    return result;
  }();
  if (problem != nullptr) *problem = found.problem;
  return found.problem.empty() ? &found.api : nullptr;
}

int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return kUint8;
    case DType::kInt8:
    case DType::kInt16:
      return kInt8;
    case DType::kInt32:
      return kInt32Type;
    case DType::kInt64:
      return kInt64Type;
    case DType::kFloat16:
      return kFloat16Type;
    case DType::kBFloat16:
      return kBfloat16Type;
    case DType::kFloat32:
      return kFloat32Type;
    case DType::kFloat64:
      break;
  }
  return kFloat64Type;
}

NcclElements nccl_elements(DType dtype, int64_t count) {
  const auto elements = static_cast<size_t>(count);
  return {nccl_type(dtype), dtype == DType::kInt16 ? elements * 2 : elements};
}

std::optional<int> nccl_reduction(DType dtype, ReduceOp reduce) {
  constexpr int kSumOp = 0, kMaxOp = 2, kMinOp = 3, kAvgOp = 4;
  if (dtype == DType::kInt16) return std::nullopt;
  switch (reduce) {
    case ReduceOp::kSum:
      return dtype == DType::kBool ? std::nullopt : std::optional(kSumOp);
    case ReduceOp::kAvg:
      return is_floating(dtype) ? std::optional(kAvgOp) : std::nullopt;
    case ReduceOp::kMax:
      return kMaxOp;
    case ReduceOp::kMin:
      break;
  }
  return kMinOp;
}

}  // namespace dtorch::cuda
