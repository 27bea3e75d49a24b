// Recycled<T>: memory for objects of a class that come and go with every call. Each thread keeps what it freed for its
// next ones, so that in the steady state neither the allocator nor a lock is involved.
//   class Value : public RefCounted, public Recycled<Value> { ... };
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>

namespace dtorch {

template <class T>
class Recycled {
 public:
  static void* operator new(size_t bytes) {
    static_assert(sizeof(T) >= sizeof(Free) && alignof(T) <= alignof(std::max_align_t));
    if (Free* kept = list_.first; kept && bytes == sizeof(T)) {
      list_.first = kept->next;
      ++list_.room;
      return kept;
    }
    return ::operator new(bytes);
  }
  static void operator delete(void* memory, size_t bytes) noexcept {
    if (bytes != sizeof(T) || (list_.room == 0 && !make_room())) return ::operator delete(memory);
    list_.first = new (memory) Free{list_.first};
    --list_.room;
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr uint32_t kMaxKept = 0;  // so that the use of a dead object is seen
#else
  static constexpr uint32_t kMaxKept = 4096;
#endif
  struct Free {
    Free* next;
  };
  struct List {
    Free* first = nullptr;
    uint32_t room = 0;      // for more
    bool was_made = false;  // room, which the thread's end takes back
  };
  // No destructor of its own: every use would ask whether it has been constructed.
  static inline constinit thread_local List list_{};

  // False when the thread keeps as much as it may, or ends.
  static bool make_room() noexcept {
    if (list_.was_made || kMaxKept == 0) return false;
    struct AtThreadEnd {
      ~AtThreadEnd() {
        while (Free* kept = list_.first) {
          list_.first = kept->next;
          ::operator delete(kept);
        }
        list_.room = 0;  // what dies later isn't kept
      }
    };
    static thread_local AtThreadEnd at_thread_end;
    static_cast<void>(at_thread_end);
    list_.was_made = true;
    list_.room = kMaxKept;
    return true;
  }
};

}  // namespace dtorch
