// Acks: collects the numbers of finished pieces and sends them to the controller: at once when the controller waits,
// when nothing else is under way, when a stream is about to sleep, or when the last message was a while ago; else in
// batches of eight. So an acknowledgement waits at most for the kernel that is running. Thread-safe.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/comm/endpoint.h"

namespace dtorch {

class Acks {
 public:
  static constexpr size_t kBatch = 8;
  static constexpr std::chrono::microseconds kBatchFor{200};
  // `fill` adds the statistics; any thread.
  Acks(ControlEndpoint& control, std::function<void(Ack&)> fill) : control_(control), fill_(std::move(fill)) {}

  // A piece has arrived. With `now`, it and those before it are acknowledged as soon as they finish.
  void begin(Sequence sequence, bool now);
  // Everything that belongs to a piece has finished, and its errors have been sent.
  void finish(Sequence sequence);
  void flush();
  // Blocks until every piece has finished.
  void wait_idle();
  // Nothing is sent any more.
  void silence();

 private:
  void send();  // under mutex_, so that acknowledgements leave in order
  ControlEndpoint& control_;
  std::function<void(Ack&)> fill_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<Sequence> finished_;  // under mutex_, as all that follows
  int64_t under_way_ = 0;
  Sequence urgent_ = 0;  // pieces up to this number are acknowledged at once
  bool silent_ = false;
  std::chrono::steady_clock::time_point sent_at_;
};

}  // namespace dtorch
