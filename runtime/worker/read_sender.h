// Sends this device's part of a value that is read to the controller.
#pragma once
#include "runtime/worker/node_context.h"

namespace dtorch {

// The part lies at `box` (global coordinates); it goes in messages of at most max_bytes, cut along the outermost dims.
// An empty box sends nothing.
void send_part(NodeContext& node, uint64_t read, const NativeTensor& part, const Box& box,
               int64_t max_bytes = int64_t{64} << 20);

}  // namespace dtorch
