// HashedPointers: a set of objects that somebody else owns, found by what they are. Open addressing; it grows, and
// takes nothing out but everything. One thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtorch {

template <class T>
class HashedPointers {
 public:
  // The object with this hash for which is_same(object) holds; null when there is none.
  template <class IsSame>
  const T* find(uint64_t hash, IsSame is_same) const {
    const size_t mask = places_.size() - 1;
    for (size_t at = hash & mask; places_[at].object != nullptr; at = (at + 1) & mask) {
      if (places_[at].hash == hash && is_same(*places_[at].object)) return places_[at].object;
    }
    return nullptr;
  }
  void insert(uint64_t hash, const T* object) {
    if ((size_ + 1) * 2 > places_.size()) grow();
    put({hash, object});
    ++size_;
  }
  void clear() {
    places_.assign(kFewest, {});
    size_ = 0;
  }

 private:
  struct Place {
    uint64_t hash = 0;
    const T* object = nullptr;
  };
  static constexpr size_t kFewest = 256;  // a power of two

  void put(const Place& place) {
    const size_t mask = places_.size() - 1;
    size_t at = place.hash & mask;
    while (places_[at].object != nullptr) at = (at + 1) & mask;
    places_[at] = place;
  }
  void grow() {
    std::vector<Place> before(places_.size() * 2);
    before.swap(places_);
    for (const Place& place : before) {
      if (place.object != nullptr) put(place);
    }
  }

  std::vector<Place> places_ = std::vector<Place>(kFewest);
  size_t size_ = 0;
};

}  // namespace dtorch
