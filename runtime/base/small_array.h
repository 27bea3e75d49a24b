// SmallArray: an array whose size is set once; up to kFew items lie in the object itself, without an allocation.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "runtime/base/error.h"

namespace dtorch {

template <class T, size_t kFew>
class SmallArray {
 public:
  SmallArray() = default;
  explicit SmallArray(size_t size) { set_size(size); }
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;

  // Once, from 0. The items are value-initialised.
  void set_size(size_t size) {
    DTORCH_CHECK(size_ == 0, "the size of a SmallArray is set once");
    size_ = size;
    if (size > kFew) [[unlikely]]
      many_ = std::make_unique<T[]>(size);
  }
  size_t size() const { return size_; }
  T* data() { return many_ ? many_.get() : few_.data(); }
  const T* data() const { return many_ ? many_.get() : few_.data(); }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  std::span<const T> all() const { return {data(), size_}; }

 private:
  size_t size_ = 0;
  std::array<T, kFew> few_{};
  std::unique_ptr<T[]> many_;
};

}  // namespace dtorch
