// Fake accelerators: devices of the CPU that run behind the host, to find mistakes of order where no GPU is.
#pragma once
#include <memory>

#include "runtime/accelerator/accelerator.h"
#include "runtime/accelerator/fake/fake_driver.h"

namespace dtorch::fake {

// The accelerators of one node. Nodes of one process share a driver, and so can have communicators together; nodes of
// several processes can't.
std::shared_ptr<AcceleratorLibrary> make_library(const Setup& setup);

}  // namespace dtorch::fake
