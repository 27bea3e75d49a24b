#include "runtime/controller/loop_finder.h"

#include <bit>

namespace dtorch {

namespace {

constexpr uint32_t kNoPlace = 0xFFFFFFFFu;
constexpr uint64_t kBase = 0xD6E8FEB86659FD93u;

constexpr uint64_t power(uint64_t base, size_t exponent) {
  uint64_t result = 1;
  for (size_t i = 0; i < exponent; ++i) result *= base;
  return result;
}
// What a record weighs in a gram when it leaves.
constexpr uint64_t kLeaving = power(kBase, LoopFinder::kGram);

}  // namespace

LoopFinder::LoopFinder(size_t max_records) : table_(std::bit_ceil(2 * max_records)) {}

void LoopFinder::clear() {
  records_.clear();
  ++stamp_;
  gram_ = 0;
  distance_ = held_for_ = 0;
}

uint32_t LoopFinder::last_place(uint64_t gram, uint32_t position) {
  const size_t mask = table_.size() - 1;
  for (size_t i = (gram ^ (gram >> 32)) & mask;; i = (i + 1) & mask) {
    Place& place = table_[i];
    if (place.stamp != stamp_) {
      place = {gram, stamp_, position};
      return kNoPlace;
    }
    if (place.gram != gram) continue;
    const uint32_t last = place.position;
    place.position = position;
    return last;
  }
}

size_t LoopFinder::add(uint64_t record) {
  const size_t at = records_.size();
  records_.push_back(record);
  gram_ = gram_ * kBase + record;
  if (at >= kGram) gram_ -= records_[at - kGram] * kLeaving;
  const uint32_t last = at + 1 >= kGram ? last_place(gram_, static_cast<uint32_t>(at)) : kNoPlace;
  if (distance_ != 0 && record == records_[at - distance_]) {
    ++held_for_;
  } else if (last != kNoPlace) {
    distance_ = at - last;
    held_for_ = 0;
    // It may have held for longer than anybody has looked.
    while (held_for_ < kMinStretch + distance_ && held_for_ + distance_ <= at &&
           records_[at - held_for_] == records_[at - held_for_ - distance_])
      ++held_for_;
  } else {
    distance_ = held_for_ = 0;
  }
  if (distance_ == 0) return 0;
  const size_t stretch = (kMinStretch + distance_ - 1) / distance_ * distance_;
  return held_for_ >= stretch ? stretch : 0;
}

}  // namespace dtorch
