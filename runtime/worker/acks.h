// Acks: collects the numbers of finished pieces and sends them to the controller: at once when the controller waits,
// when nothing else is under way, when a stream is about to sleep, or when the last message was a while ago; else in
// batches of eight. So an acknowledgement waits at most for the kernel that is running. A node that passes messages on
// (fan_out.h) acknowledges what it and all nodes below it have finished. Thread-safe.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/comm/endpoint.h"

namespace dtorch {

class Acks {
 public:
  static constexpr size_t kBatch = 8;
  static constexpr std::chrono::microseconds kBatchFor{200};
  // `fill` adds the statistics; any thread.
  Acks(ControlEndpoint& control, std::function<void(Ack&)> fill) : control_(control), fill_(std::move(fill)) {}
  // Before anything else: where acknowledgements go, and how many nodes send theirs here.
  void configure(int32_t parent, int32_t num_children);

  // A piece has arrived. With `now`, it and those before it are acknowledged as soon as they finish; with `statistics`,
  // a node whose acknowledgements others merge sends its statistics too.
  void begin(Sequence sequence, bool now, bool statistics);
  // Everything that belongs to a piece has finished here, and its errors have been sent.
  void finish(Sequence sequence);
  // A node below and all below it have finished these. Throws DecodeError for a piece that isn't under way.
  void finish_below(const std::vector<Sequence>& sequences);
  void flush();
  // Blocks until every piece has finished here.
  void wait_idle();
  // Nothing is sent any more.
  void silence();

 private:
  void finish_one(Sequence sequence);  // under mutex_, as the next one
  void send();                         // so that acknowledgements leave in order
  ControlEndpoint& control_;
  std::function<void(Ack&)> fill_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<Sequence> finished_;  // under mutex_, as all that follows
  int64_t under_way_ = 0, own_under_way_ = 0;
  Sequence urgent_ = 0;  // pieces up to this number are acknowledged at once
  int32_t parent_ = kController;
  int32_t num_children_ = 0;
  std::unordered_map<Sequence, int32_t> missing_;  // how many have yet to finish; used with children only
  std::unordered_set<Sequence> statistics_;        // wanted with these
  bool silent_ = false;
  std::chrono::steady_clock::time_point sent_at_;
};

}  // namespace dtorch
