// Communicators of NCCL. They don't block the host: a call that NCCL finishes later is waited for here, with the
// patience given to join(). Each by one thread at a time.
#pragma once
#include <atomic>
#include <mutex>

#include "runtime/accelerator/communicator.h"
#include "runtime/cuda/nccl_api.h"

namespace dtorch::cuda {

class CudaAccelerator;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclApi& api, NcclApi::Comm comm, int32_t rank, int32_t num_ranks,
                   CudaAccelerator& accelerator, CommunicatorFactory::Patience patience);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int32_t rank() const override { return rank_; }
  int32_t num_ranks() const override { return num_ranks_; }
  void all_reduce(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                  ReduceOp reduce) override;
  void all_gather(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype) override;
  void reduce_scatter(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                      ReduceOp reduce) override;
  void broadcast(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                 int32_t root) override;
  void send(DeviceStream& stream, const std::byte* data, int64_t count, DType dtype, int32_t to) override;
  void receive(DeviceStream& stream, std::byte* data, int64_t count, DType dtype, int32_t from) override;
  std::optional<std::string> failure() override;
  void cancel() override;
  std::unique_ptr<Communicator> split(int32_t colour, int32_t key) override;

 private:
  // Calls `function` with the communicator and the stream behind `arguments`; not while cancel() runs, nor afterwards.
  template <class F, class... A>
  void enqueue(DeviceStream& stream, const char* name, F* function, A... arguments);
  // The call's own code; waits while NCCL is still at it. In a group nothing is waited for.
  void finish(int code, const char* call);
  int reduction(DType dtype, ReduceOp reduce) const;

  const NcclApi& api_;
  const int32_t rank_, num_ranks_;
  CudaAccelerator& accelerator_;
  const CommunicatorFactory::Patience patience_;
  std::mutex mutex_;              // so that cancel() may come at any time
  NcclApi::Comm comm_ = nullptr;  // under mutex_ where it changes; null: cancelled
};

class NcclFactory final : public CommunicatorFactory {
 public:
  NcclFactory() : api_(NcclApi::find(&problem_)) {}
  const std::string& problem() const { return problem_; }  // why there is no NCCL; "" when there is
  Id new_id() override;
  std::unique_ptr<Communicator> join(const Id& id, int32_t rank, int32_t num_ranks, Accelerator& accelerator,
                                     const Patience& patience) override;
  void group_begin() override;
  void group_end() override;
  bool can_reduce(DType dtype, ReduceOp reduce) const override { return nccl_reduction(dtype, reduce).has_value(); }
  bool allows_ranks_on_one_device() const override { return false; }

 private:
  const NcclApi& api() const;
  std::string problem_;
  const NcclApi* const api_;
};

}  // namespace dtorch::cuda
