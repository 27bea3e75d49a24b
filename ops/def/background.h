// Work that a kernel starts and that goes on after it, on threads of its own: the writing of a checkpoint's part. It
// answers a read that the kernel's call has recorded (RecordPayload::read, under the number in the call's first
// scalar), whenever it is done: the call itself is over long before, so that neither its device nor later reads wait
// for it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>
#include <utility>
#include <vector>

#include "mesh/shape.h"

namespace dtorch {

// The destructor ends the work and waits for its threads.
class BackgroundWork {
 public:
  virtual ~BackgroundWork() = default;
};

// What goes on in the background of one node. Thread-safe.
class Background {
 public:
  Background() = default;
  virtual ~Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // This node's work of type W, made at the first call from this object. It lives as long as the node serves. The
  // first call blocks until what begin_after() was given is there.
  template <class W>
  W& work() {
    std::lock_guard lock(mutex_);
    std::unique_ptr<BackgroundWork>& work = works_[std::type_index(typeid(W))];
    if (!work) {
      if (former_.valid()) former_.wait();
      work = std::make_unique<W>(*this);
    }
    return static_cast<W&>(*work);
  }
  // No work begins before: that of an earlier object may have to end first. Before the first kernel.
  void begin_after(std::shared_future<void> former) { former_ = std::move(former); }
  // Gives a part of what read `number` asks for: the elements of `box`, packed row-major. Doesn't block.
  virtual void answer(uint64_t number, const Box& box, std::vector<std::byte> packed) = 0;
  // The job is ending: nobody waits for answers any more.
  virtual bool is_ending() const = 0;

 protected:
  // Ends all work. No kernel runs any more.
  void end_works() {
    std::lock_guard lock(mutex_);
    works_.clear();
  }

 private:
  std::shared_future<void> former_;  // invalid: nothing to wait for
  std::mutex mutex_;
  std::map<std::type_index, std::unique_ptr<BackgroundWork>> works_;  // under mutex_
};

// Of the node whose kernel runs on this thread. Throws InternalError on any other thread.
Background& this_nodes_background();
// By a device's thread, before its first kernel.
void set_background_of_this_thread(Background* background);

}  // namespace dtorch
