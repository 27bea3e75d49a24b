// A vector of small, trivially copyable items with a fixed capacity and no allocation: shapes, placements, orders.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>

#include "runtime/base/error.h"

namespace dtorch {

template <class T, int kCapacity>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() = default;
  InlineVector(std::initializer_list<T> items) { assign(items.begin(), items.end()); }
  template <std::input_iterator It>
  InlineVector(It first, It last) {
    assign(first, last);
  }
  explicit InlineVector(int64_t count, const T& value) {
    for (int64_t i = 0; i < count; ++i) push_back(value);
  }

  template <std::input_iterator It>
  void assign(It first, It last) {
    size_ = 0;
    for (; first != last; ++first) push_back(*first);
  }
  // Throws ShapeError when full: the number of dims or axes comes from user input.
  void push_back(const T& item) {
    if (size_ == kCapacity) throw ShapeError("more than " + std::to_string(kCapacity) + " dims or axes");
    items_[static_cast<size_t>(size_++)] = item;
  }
  void pop_back() { --size_; }
  void resize(int64_t count, const T& value = T{}) {
    while (size_ < count) push_back(value);
    size_ = static_cast<int32_t>(count);
  }
  void clear() { size_ = 0; }
  iterator insert(const_iterator position, const T& item) {
    int64_t at = position - begin();
    push_back(item);
    std::rotate(begin() + at, end() - 1, end());
    return begin() + at;
  }
  iterator erase(const_iterator position) {
    iterator at = begin() + (position - begin());
    std::copy(at + 1, end(), at);
    --size_;
    return at;
  }

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](int64_t i) { return items_[static_cast<size_t>(i)]; }
  const T& operator[](int64_t i) const { return items_[static_cast<size_t>(i)]; }
  T& front() { return items_[0]; }
  const T& front() const { return items_[0]; }
  T& back() { return (*this)[size_ - 1]; }
  const T& back() const { return (*this)[size_ - 1]; }
  T* data() { return items_.data(); }
  const T* data() const { return items_.data(); }
  iterator begin() { return items_.data(); }
  iterator end() { return items_.data() + size_; }
  const_iterator begin() const { return items_.data(); }
  const_iterator end() const { return items_.data() + size_; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  std::array<T, static_cast<size_t>(kCapacity)> items_{};
  int32_t size_ = 0;
};

}  // namespace dtorch
