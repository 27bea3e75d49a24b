#include "runtime/worker/node_background.h"

#include <utility>

namespace dtorch {

void NodeBackground::answer(uint64_t number, const Box& box, std::vector<std::byte> packed) {
  ReadData data;
  data.epoch = epoch_;
  data.node = node_;
  data.read = number;
  data.box = box;
  Message message = encode(data, std::make_shared<const Bytes>(std::move(packed)));
  std::lock_guard lock(mutex_);
  if (control_ != nullptr) control_->send(kController, std::move(message));
}

void NodeBackground::silence() {
  {
    std::lock_guard lock(mutex_);
    control_ = nullptr;
  }
  ending_.store(true, std::memory_order_release);
}

void NodeBackground::end() {
  silence();
  end_works();
}

}  // namespace dtorch
