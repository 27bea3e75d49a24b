// What a Sub-Controller says of its node: at the start, and when the controller asks.
#pragma once
#include <memory>
#include <vector>

#include "runtime/worker/kernel_stream.h"

namespace dtorch {

void say_hello(NodeContext& node, DeviceBackend& backend);

// Sends the answer: at once, or from the thread that knows (the comm thread its transfers, streams what their devices
// hold and have done). The Sub-Controller's thread.
void answer(const std::shared_ptr<NodeContext>& node, const std::vector<std::unique_ptr<KernelStream>>& streams,
            const Inspect& question);

}  // namespace dtorch
