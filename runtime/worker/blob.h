// Blob: the value of one operand on one device. Blobs lie in their device's operand table, which only the device's
// KernelStream touches; what other threads hold of them are counted NativeTensors, Poisons and Arrivals.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "ops/def/native_tensor.h"
#include "runtime/accelerator/accelerator.h"
#include "runtime/base/intrusive.h"
#include "runtime/graph/inspection.h"
#include "runtime/worker/event.h"
#include "runtime/worker/native/native_memory.h"
#include "runtime/worker/tensor_pool.h"

namespace dtorch {

// Why a value doesn't exist: the first error upstream of it. Immutable, shared by everything that depends on the failed
// operator.
struct Poison : RefCounted {
  Poison(std::string what, int64_t on_device, Sequence in_sequence, uint32_t at_op)
      : message(std::move(what)), device(on_device), sequence(in_sequence), op_index(at_op) {}
  const std::string message;
  const int64_t device;  // -1: not on this node
  const Sequence sequence;
  const uint32_t op_index;
};
using PoisonPtr = IntrusivePtr<Poison>;

// A value on its way to one device: written by the comm thread, or the compute stream that makes it, before `event` is
// set, read by the device's streams after. A stream that alone holds it may take the value out.
struct Arrival : RefCounted {
  Arrival(std::shared_ptr<Parker> waiter, MemoryCounter& device_memory, const Place& of_transfer, uint32_t of_spec)
      : event(std::move(waiter)), memory(device_memory), place(of_transfer), spec(of_spec) {}
  Event event;
  MemoryCounter& memory;  // of the device that it is for
  const Place place;
  const uint32_t spec;
  NativeTensor value;
  PoisonPtr poison;
  // Of a device that runs behind the host: when the value is there on the device. None: the value is on the host.
  DeviceEventPtr ready;
  std::atomic<bool> is_ragged{false};  // its size is data, and a profile hasn't counted it yet
  int64_t moved_bytes = 0;             // of a ragged one: what came from other devices
  bool is_shared = false;              // of a device with one stream, its own: several operands wait for it
};

// Empty; or pending (the transfer's Event says when it is settled); or a value; or poisoned.
struct Blob {
  NativeTensor value;
  // Where the value may go when it dies; null: to the allocator.
  TensorPool::Kind* kind = nullptr;
  // The value's first element, when it is known to be contiguous; null: nobody has looked.
  std::byte* data = nullptr;
  PoisonPtr poison;
  IntrusivePtr<Arrival> pending;
  // NativeTensor::is_reusable of the value; what a pool gave is known to lie as a new one.
  bool is_reusable() const { return kind != nullptr ? value.is_sole_owner() : value.is_reusable(); }
  bool is_empty() const { return !value && !poison && !pending; }
  void reset() {
    if (value) value.reset();
    kind = nullptr;
    data = nullptr;
    if (poison) poison.reset();
    if (pending) pending.reset();
  }
};

}  // namespace dtorch
