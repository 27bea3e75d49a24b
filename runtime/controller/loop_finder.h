// Finds out that a stream repeats itself: a function of the records since the last boundary alone. A distance is
// proposed by the last sixteen records' previous appearance, and held until a record differs from the one that far
// back. Once it has held for a whole repetition, and for at least kMinStretch records, the stretch since then is worth
// a template of its own: the loop's head is here. Used by one executor's thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtorch {

class LoopFinder {
 public:
  // Repetitions are taken together until a stretch has this many records.
  static constexpr size_t kMinStretch = 256;
  // Records that are compared at once to propose a distance.
  static constexpr size_t kGram = 16;

  explicit LoopFinder(size_t max_records);
  // Takes in the next record's hash. Number of records of the stretch that ends with this one and repeats what was
  // before it; 0: none.
  size_t add(uint64_t record);
  // A boundary: forgets everything.
  void clear();

 private:
  struct Place {
    uint64_t gram = 0;
    uint32_t stamp = 0;
    uint32_t position = 0;
  };
  uint32_t last_place(uint64_t gram, uint32_t position);  // of the same gram; notes this one

  std::vector<uint64_t> records_;
  std::vector<Place> table_;  // open addressing, a power of two
  uint32_t stamp_ = 1;
  uint64_t gram_ = 0;    // of the last kGram records
  size_t distance_ = 0;  // 0: none is held
  size_t held_for_ = 0;  // records
};

}  // namespace dtorch
