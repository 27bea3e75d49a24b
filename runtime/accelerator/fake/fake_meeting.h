// Where the ranks of a fake communicator meet. All but join(), cancel() and the failure is the driver's thread's.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mesh/placement.h"
#include "ops/def/native_tensor.h"

namespace dtorch::fake {

enum class Kind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast };

// What one rank gives to a collective.
struct Part {
  Kind kind = Kind::kAllReduce;
  NativeTensor send, receive;  // bytes
  int64_t count = 0;
  DType dtype = kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  int32_t root = 0;
  std::string str() const;
};
// One message of a group.
struct Message {
  bool is_send = false;
  int32_t peer = 0;
  NativeTensor memory;  // bytes
  bool is_done = false;
};

// Collectives and groups that cancel() has ended, of all jobs of the process.
int64_t num_cancelled();

class Meeting {
 public:
  Meeting(int32_t num_ranks, double deadline_s);

  // Any thread.
  int32_t num_ranks() const { return static_cast<int32_t>(ranks_.size()); }
  // Blocks until all ranks are here. False: is_over() was true, or the deadline has passed.
  bool join(const std::function<bool()>& is_over);
  std::optional<std::string> failure() const;
  // Ends what the rank waits for, now and later. Others go on waiting for it, as NCCL's do.
  void cancel(int32_t rank);
  bool is_cancelled(int32_t rank) const;

  // What a rank has at the head of its stream. True when it is over: done, or given up; asked again until then, and
  // not afterwards.
  bool meet(int32_t rank, uint64_t number, const Part& part);
  bool meet(int32_t rank, uint64_t number, std::vector<Message>& messages);
  // What a rank's last one was given up for; to be told by its stream. None when it was cancelled.
  std::optional<std::string> take_failure(int32_t rank);

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    std::string doing;  // "" when nothing waits
    Clock::time_point since;
    bool gave_up = false;
    const Part* part = nullptr;
    uint64_t number = 0;
  };
  bool begin_waiting(int32_t rank, uint64_t number, const std::string& what);
  bool is_given_up(int32_t rank);
  void fail(const std::string& what);
  std::string who_waits() const;
  void run(const std::vector<const Part*>& parts);

  const double deadline_s_;
  std::vector<Rank> ranks_;
  // Messages that wait for their other end, by (from, to): sends and receives.
  std::map<std::pair<int32_t, int32_t>, std::deque<Message*>> sends_, receives_;
  mutable std::mutex mutex_;
  std::condition_variable joined_;
  int32_t num_joined_ = 0;          // under mutex_
  std::string failure_;             // under mutex_
  std::vector<bool> is_cancelled_;  // by rank, under mutex_
};

}  // namespace dtorch::fake
