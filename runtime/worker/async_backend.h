// DeviceBackend over accelerators, which run behind the host.
#pragma once
#include <memory>
#include <string>

#include "runtime/accelerator/accelerator.h"
#include "runtime/worker/device_backend.h"

namespace dtorch {

std::unique_ptr<DeviceBackend> make_async_backend(std::shared_ptr<AcceleratorLibrary> library);
// What --device names: "cpu", "fake", "fake:N" or "fake:N:SEED", N the accelerators a node (0: one a device). Throws
// UserError with what was found instead. is_only_process: all nodes of the job are in this one.
std::unique_ptr<DeviceBackend> make_backend(const std::string& device, bool is_only_process);
// The same question without an answer: throws what make_backend() would. has_nodes: false for a process
// without nodes, which needs no library: only the name is looked at.
void check_device(const std::string& device, bool has_nodes);
// Accelerators that a node in this process has for it: as many devices it gets when nobody says. 0: the kind has none,
// or what make_backend() would throw.
int32_t num_accelerators(const std::string& device);

}  // namespace dtorch
