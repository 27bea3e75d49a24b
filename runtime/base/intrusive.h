// Intrusive reference counting: one pointer a handle, an atomic count in the object.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace dtorch {

// Base of counted objects. The count starts at 0; IntrusivePtr takes the first reference.
class RefCounted {
 public:
  void add_ref() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  // True when the last reference went away.
  bool drop_ref() const { return refs_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  uint32_t ref_count() const { return refs_.load(std::memory_order_acquire); }

 protected:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  ~RefCounted() = default;

 private:
  mutable std::atomic<uint32_t> refs_{0};
};

// How IntrusivePtr counts. A class that is only forward-declared where its handles are used declares overloads of these
// two beside its forward declaration.
template <class T>
void counted_add_ref(T* object) {
  object->add_ref();
}
template <class T>
void counted_release(T* object) {
  if (object->drop_ref()) delete object;
}

template <class T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  IntrusivePtr(std::nullptr_t) {}
  explicit IntrusivePtr(T* object) : object_(object) {
    if (object_) counted_add_ref(object_);
  }
  IntrusivePtr(const IntrusivePtr& other) : IntrusivePtr(other.object_) {}
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() { reset(); }
  void reset() {
    T* object = std::exchange(object_, nullptr);
    if (object) counted_release(object);
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) { return a.object_ == b.object_; }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
IntrusivePtr<T> make_intrusive(Args&&... args) {
  return IntrusivePtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace dtorch
