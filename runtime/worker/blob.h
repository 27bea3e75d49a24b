// Blob: the value of one operand on one device. Blobs lie in their device's operand table, which only the device's
// KernelStream touches; what other threads hold of them are counted NativeTensors, Poisons and Arrivals.
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "ops/def/native_tensor.h"
#include "runtime/base/intrusive.h"
#include "runtime/graph/logical_graph.h"
#include "runtime/worker/event.h"
#include "runtime/worker/native/native_memory.h"

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

// A value on its way to one device: written by the comm thread before `event` is set, read by the device's stream
// after.
struct Arrival : RefCounted {
  Arrival(std::shared_ptr<Parker> waiter, MemoryCounter& device_memory)
      : event(std::move(waiter)), memory(device_memory) {}
  Event event;
  MemoryCounter& memory;  // of the device that it is for
  NativeTensor value;
  PoisonPtr poison;
};

// Empty; or pending (the transfer's Event says when it is settled); or a value; or poisoned.
struct Blob {
  NativeTensor value;
  PoisonPtr poison;
  IntrusivePtr<Arrival> pending;
  void reset() {
    value.reset();
    if (poison) poison.reset();
    if (pending) pending.reset();
  }
};

}  // namespace dtorch
