// A map from slots to small numbers that is emptied in O(1) and allocates nothing in the steady state.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/graph/logical_graph.h"

namespace dtorch {

class SlotMap {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
  void clear() { ++stamp_; }
  uint32_t get(OperandId slot) const {
    return slot < entries_.size() && entries_[slot].stamp == stamp_ ? entries_[slot].value : kNone;
  }
  void set(OperandId slot, uint32_t value) {
    if (slot >= entries_.size()) entries_.resize(size_t{slot} + slot / 2 + 64);
    entries_[slot] = {stamp_, value};
  }
  void erase(OperandId slot) {
    if (slot < entries_.size()) entries_[slot].stamp = 0;
  }

 private:
  struct Entry {
    uint64_t stamp = 0;
    uint32_t value = kNone;
  };
  std::vector<Entry> entries_;
  uint64_t stamp_ = 1;
};

}  // namespace dtorch
