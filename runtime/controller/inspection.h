// Inspection: asks all nodes about themselves and collects what they answer. Thread-safe. Several questions may be
// open: one that a busy device answers late doesn't keep others waiting, the watchdog's least of all.
#pragma once
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/comm/endpoint.h"
#include "runtime/graph/inspection.h"

namespace dtorch {

class Inspection {
 public:
  Inspection(ControlEndpoint& control, int32_t num_nodes)
      : control_(control), num_nodes_(num_nodes), lost_(static_cast<size_t>(num_nodes)) {}
  // By node; empty where no answer came within `wait`, or the node is lost. Blocks; not on the inbox thread.
  using Answers = std::vector<std::optional<Answer>>;
  Answers ask(Aspect aspect, std::chrono::nanoseconds wait);
  // That node won't answer any more, and isn't asked. Any thread.
  void set_lost(int32_t node);
  bool is_lost(int32_t node) const;
  // Inbox thread. Late answers are dropped. Throws RuntimeFault when a node answers for another.
  void on_answer(int32_t node, Answer answer);
  // Nobody will answer any more: ask() returns what it has, at once.
  void close();

 private:
  struct Question {
    Answers answers;
    int32_t missing = 0;
    int64_t asked_ns = 0;
  };
  ControlEndpoint& control_;
  const int32_t num_nodes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t number_ = 0;                 // of the last question; under mutex_, as all below
  std::map<uint32_t, Question*> open_;  // by number; each belongs to the call of ask() that waits for it
  std::vector<bool> lost_;              // by node
  bool closed_ = false;
};

}  // namespace dtorch
