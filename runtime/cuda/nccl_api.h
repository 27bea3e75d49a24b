// NCCL's functions. libnccl.so.2 is loaded, the same that LibTorch uses, and its stable part is declared here, so that
// no header of it is needed. Numbers are NCCL's own.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <string>

#include "mesh/dtype.h"
#include "mesh/placement.h"

namespace dtorch::cuda {

struct NcclApi {
  using Comm = struct OpaqueNcclComm*;
  enum Result : int { kSuccess = 0, kInProgress = 7 };
  struct Id {
    char bytes[128];
  };
  // The first fields of ncclConfig_t, as of 2.14; newer libraries read no more of one that says so.
  struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;
    int blocking = 0;
  };
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(Id*) = nullptr;
  int (*init_rank)(Comm*, int, Id, int, Config*) = nullptr;
  int (*split)(Comm, int, int, Comm*, Config*) = nullptr;  // null: the library hasn't it
  int (*user_rank)(Comm, int*) = nullptr;
  int (*count)(Comm, int*) = nullptr;
  int (*finalize)(Comm) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*async_error)(Comm, int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, Comm, cudaStream_t) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*send)(const void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*receive)(void*, size_t, int, int, Comm, cudaStream_t) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;

  // Null, and `problem` says why, when it can't be loaded.
  static const NcclApi* find(std::string* problem);
};

// How NCCL moves `count` elements of a dtype: bytes, where it has no such type.
struct NcclElements {
  int type = 0;
  size_t count = 0;
};
NcclElements nccl_elements(DType dtype, int64_t count);
// The number of the reduction; nothing where NCCL can't fold this dtype as DTorch does (means of integers, sums of
// bool, int16).
std::optional<int> nccl_reduction(DType dtype, ReduceOp reduce);
// The type that nccl_reduction() is of.
int nccl_type(DType dtype);

}  // namespace dtorch::cuda
