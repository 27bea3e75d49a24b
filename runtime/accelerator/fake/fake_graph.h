// Captures of fake streams: the items that a stream's thread gave it, written down instead of run, and run again as
// often as the graph is launched, on the same memory. As with CUDA a capture holds work of the device only: what waits,
// tells the host, or needs its memory, is refused and makes the capture void.
#pragma once
#include <set>
#include <string>

#include "runtime/accelerator/fake/fake_driver.h"

namespace dtorch::fake {

struct Driver::Capture {
  std::vector<Item> items;
  StreamMark first;              // of the stream when it began
  std::set<const void*> memory;  // where that begins which the items use
  std::string refused;           // what couldn't be captured; "": nothing
};

// That the calling thread has under way, on whatever stream; null: none.
Driver::Capture* capture_of_thread();
// Throws RuntimeFault when the calling thread captures, and makes the capture void.
void require_no_capture(const std::string& what);

class Graph final : public DeviceGraph {
 public:
  Graph(Driver& driver, std::shared_ptr<Driver::Queue> queue, std::shared_ptr<const Driver::Capture> capture)
      : driver_(driver), queue_(std::move(queue)), capture_(std::move(capture)) {}
  void launch() override { driver_.push_all(*queue_, capture_); }

 private:
  Driver& driver_;
  const std::shared_ptr<Driver::Queue> queue_;
  const std::shared_ptr<const Driver::Capture> capture_;
};

}  // namespace dtorch::fake
