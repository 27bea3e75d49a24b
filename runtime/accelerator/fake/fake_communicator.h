// Communicators among fake accelerators of one process. As NCCL's they stand still when ranks don't do the same in the
// same order; other than these they notice, when the deadline has passed, and say who waits for what. Ranks that give
// unequal sizes fail at once. Folds go by rank.
#pragma once
#include <memory>

#include "runtime/accelerator/communicator.h"

namespace dtorch::fake {

class Driver;

class Communicators final : public CommunicatorFactory {
 public:
  explicit Communicators(Driver& driver) : driver_(driver) {}
  Id new_id() override;
  std::unique_ptr<Communicator> join(const Id& id, int32_t rank, int32_t num_ranks, Accelerator& accelerator,
                                     const Patience& patience) override;
  void group_begin() override;
  void group_end() override;
  // As NCCL.
  bool can_reduce(DType dtype, ReduceOp) const override { return dtype != kBool && dtype != kInt16; }
  bool allows_ranks_on_one_device() const override { return false; }

 private:
  Driver& driver_;
};

}  // namespace dtorch::fake
