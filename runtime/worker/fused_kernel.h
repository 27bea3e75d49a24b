// FusedKernel: a run of elementwise operators (runtime/graph/fused_runs.h) as one kernel of one device. What takes a
// run to a kernel is a door for compilers: DeviceBackend::fuse. What stands behind it for the CPU takes the operators'
// own prepared kernels through the tensors block by block (blocked_kernel.cc).
#pragma once
#include <memory>

#include "ops/def/fused_program.h"

namespace dtorch {

class DeviceBackend;
// The members' prepared kernels, block by block; null when one of them has none for blocks.
std::unique_ptr<FusedKernel> make_blocked_kernel(const FusedProgram& program, DeviceBackend& backend);

}  // namespace dtorch
