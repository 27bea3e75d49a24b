// Mistakes that a test plants in the fake devices: what a program that lacks an event, a handle or an order would do.
// No test that finds none of them would find a real one.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/accelerator/accelerator.h"

namespace dtorch::fake {

struct Faults {
  // Streams of the first kind don't wait for events of the second.
  std::optional<std::pair<StreamKind, StreamKind>> missing_wait;
  bool missing_keep = false;
  bool missing_share = false;
  // What a device graph reads where it lay at the capture isn't brought there.
  bool missing_graph_input = false;
  // Every this many collectives of a device it begins one after the next one of the same communicator; 0: never.
  int32_t swap_every = 0;
};

// Of all fake devices of the process from now on; between jobs.
void plant(const Faults& faults);
const Faults& planted();

}  // namespace dtorch::fake
