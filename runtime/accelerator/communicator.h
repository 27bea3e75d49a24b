// Collectives among accelerators, as NCCL has them: every rank of a communicator enqueues the same operations, of the
// same sizes, in the same order, on a stream of its own. Nothing waits for a device but what says so.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mesh/dtype.h"
#include "mesh/placement.h"

namespace dtorch {

class Accelerator;
class DeviceStream;

// By one thread at a time. Memory is of the rank's accelerator, contiguous, and stays there until the work has run:
// whoever calls sees to that with DeviceStream::keep. Counts are of elements.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t num_ranks() const = 0;

  // send may be receive. kAvg divides the sum by the number of ranks.
  virtual void all_reduce(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                          ReduceOp reduce) = 0;
  // receive: num_ranks() times `count`, by rank. In place where send is the rank's own part of it.
  virtual void all_gather(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                          DType dtype) = 0;
  // send: num_ranks() times `count`, by rank. In place where receive is the rank's own part of it.
  virtual void reduce_scatter(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                              DType dtype, ReduceOp reduce) = 0;
  virtual void broadcast(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                         int32_t root) = 0;
  // Between group_begin() and group_end() of the factory; all that a group holds runs at once, as one.
  virtual void send(DeviceStream& stream, const std::byte* data, int64_t count, DType dtype, int32_t to) = 0;
  virtual void receive(DeviceStream& stream, std::byte* data, int64_t count, DType dtype, int32_t from) = 0;

  // What has failed since, a peer that is gone among it; none while all is well. Doesn't block.
  virtual std::optional<std::string> failure() = 0;
  // Ends what is under way, wherever it stands; streams go on. Idempotent. Any thread.
  virtual void cancel() = 0;
  // Collective on all ranks: ranks of one colour become a communicator, in order of `key`; a negative colour gets none.
  // Null also where the library can't split; the caller makes one by join() then. Blocks until all have called.
  virtual std::unique_ptr<Communicator> split(int32_t colour, int32_t key) = 0;
};

class CommunicatorFactory {
 public:
  using Id = std::array<std::byte, 128>;
  virtual ~CommunicatorFactory() = default;
  // By one process, for all.
  virtual Id new_id() = 0;
  // How long a rank waits for the others, here and where the library itself watches collectives; and whether to give up
  // at once, asked from time to time.
  struct Patience {
    double deadline_s = 0;  // 0: for ever
    std::function<bool()> is_over;
  };
  // Blocks until all ranks have joined; throws RuntimeFault with what was found. One thread a rank.
  virtual std::unique_ptr<Communicator> join(const Id& id, int32_t rank, int32_t num_ranks, Accelerator& accelerator,
                                             const Patience& patience) = 0;
  // Of the calling thread.
  virtual void group_begin() = 0;
  virtual void group_end() = 0;
  // Which dtypes and reductions collectives can fold; others go by send and receive, and a fold on the stream.
  virtual bool can_reduce(DType dtype, ReduceOp reduce) const = 0;
  // Two ranks of a communicator may be one physical device (NCCL: no).
  virtual bool allows_ranks_on_one_device() const = 0;
};

}  // namespace dtorch
