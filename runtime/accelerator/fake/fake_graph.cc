#include "runtime/accelerator/fake/fake_graph.h"

#include <utility>

#include "runtime/accelerator/fake/fake_stream.h"
#include "runtime/base/error.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch::fake {
namespace {

thread_local Driver::Capture* under_way = nullptr;

}  // namespace

Driver::Capture* capture_of_thread() { return under_way; }

void require_no_capture(const std::string& what) {
  if (under_way == nullptr) return;
  under_way->refused = what;
  throw RuntimeFault("a capture can't hold " + what);
}

void Driver::begin_capture(Queue& queue) {
  require_no_capture("another capture");
  auto capture = std::make_shared<Capture>();
  std::lock_guard lock(mutex_);
  if (queue.capture) throw RuntimeFault("the stream is being captured by another thread");
  capture->first = queue.mark;
  under_way = capture.get();
  queue.capture = std::move(capture);
}

std::shared_ptr<Driver::Capture> Driver::end_capture(Queue& queue) {
  std::lock_guard lock(mutex_);
  DTORCH_CHECK(queue.capture && queue.capture.get() == under_way, "the end of a capture that wasn't begun");
  under_way = nullptr;
  return std::exchange(queue.capture, nullptr);
}

void Driver::push_all(Queue& queue, const std::shared_ptr<const Capture>& capture) {
  {
    std::lock_guard lock(mutex_);
    for (const Item& item : capture->items) {
      const StreamMark mark{queue.mark.sequence, queue.mark.op_index + (item.mark.op_index - capture->first.op_index)};
      Item again{nullptr, [capture, &item] { item.run(); }, mark, next_due(queue)};
      if (item.is_ready) again.is_ready = [capture, &item] { return item.is_ready(); };
      queue.items.push_back(std::move(again));
    }
  }
  changed_.notify_all();
}

void Stream::begin_capture() { driver_.begin_capture(*queue_); }

std::unique_ptr<DeviceGraph> Stream::end_capture() {
  std::shared_ptr<Driver::Capture> capture = driver_.end_capture(*queue_);
  if (!capture->refused.empty()) throw RuntimeFault("a capture can't hold " + capture->refused);
  graph_memory_.insert(capture->memory.begin(), capture->memory.end());
  return std::make_unique<Graph>(driver_, queue_, std::move(capture));
}

NativeTensor Stream::unowned(const NativeTensor& value) {
  if (value.num_elements() == 0) return value;
  auto* const begin = static_cast<std::byte*>(const_cast<void*>(storage_of(value)));
  const Shape elements{value.storage_bytes() / size_of(value.dtype())};
  const NativeTensor all = tensor_over(
      begin, static_cast<size_t>(value.storage_bytes()), nullptr, [](void*) {}, elements, value.dtype());
  return strided_view(all, value.local_shape(), value.strides(), (value.data() - begin) / size_of(value.dtype()));
}

}  // namespace dtorch::fake
