// SlotList: a stack of operand slots for the path that every call takes: a vector whose push() is a store, with
// everything that makes room elsewhere.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "runtime/graph/logical_graph.h"

namespace dtorch {

class SlotList {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  std::span<const OperandId> all() const { return {slots_.data(), size_}; }
  void push(OperandId slot) {
    if (size_ == slots_.size()) [[unlikely]]
      grow();
    slots_[size_++] = slot;
  }
  // Of a list that isn't empty.
  OperandId pop() { return slots_[--size_]; }
  void clear() { size_ = 0; }

 private:
  [[gnu::noinline, gnu::cold]] void grow() { slots_.resize(2 * slots_.size() + 64); }
  std::vector<OperandId> slots_;  // the first size_ of them
  size_t size_ = 0;
};

}  // namespace dtorch
