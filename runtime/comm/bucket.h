// Several transfers whose messages travel together: of all that go from one node to another in one stage one message is
// made. Each keeps its plan, its sources, its results and its failures, so that nothing else changes.
//
//   message := those of the transfers that have one, in order of their numbers, each at a multiple of kPartAlignment
//
// What travels together waits for the last one's sources, so no source may depend on another one's result.
#pragma once
#include <memory>
#include <vector>

#include "runtime/comm/transfer.h"

namespace dtorch {

class Bucket final : public CommTask {
 public:
  struct Member {
    IntrusivePtr<CommTask> transfer;
    std::shared_ptr<const NodePlan> plan;
    uint64_t number = 0;
  };
  // In order of their numbers; all nodes that take part in one of them make the bucket of the same numbers.
  explicit Bucket(std::vector<Member> members);
  ~Bucket() override;
  bool poll(Transport& transport) override;
  // Of the first that hasn't ended.
  std::optional<TransferStatus> status() const override;
  bool sleeps() const override;

 private:
  class Messages;
  std::vector<Member> members_;  // `transfer` null: ended
  std::unique_ptr<Messages> messages_;
};

}  // namespace dtorch
