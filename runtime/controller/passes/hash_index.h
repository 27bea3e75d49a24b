// A hash index over things that lie in an array: from a hash to a position. Emptied in O(1), so that a pass allocates
// nothing in the steady state.
#pragma once
#include <cstdint>
#include <vector>

namespace dtorch {

class HashIndex {
 public:
  // Before the first use, and to empty it.
  void clear(size_t max_entries) {
    size_t size = entries_.empty() ? 64 : entries_.size();
    while (size < 2 * max_entries) size *= 2;
    if (size != entries_.size()) entries_.assign(size, {});
    mask_ = size - 1;
    ++stamp_;
  }
  // The position that is kept under this hash and for which is_same(position) holds; if there is none, `position` is
  // kept. The reference holds until the next call.
  template <class IsSame>
  uint32_t& find_or_insert(uint64_t hash, uint32_t position, IsSame is_same) {
    for (size_t at = hash;; ++at) {
      Entry& entry = entries_[at & mask_];
      if (entry.stamp != stamp_) entry = {stamp_, hash, position};
      if (entry.position == position || (entry.hash == hash && is_same(entry.position))) return entry.position;
    }
  }

 private:
  struct Entry {
    uint64_t stamp = 0;
    uint64_t hash = 0;
    uint32_t position = 0;
  };
  std::vector<Entry> entries_;  // a power of two
  size_t mask_ = 0;
  uint64_t stamp_ = 0;
};

inline uint64_t mix_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace dtorch
