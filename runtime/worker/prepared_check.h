// For tests: whether calls are checked against their operators' kernels, run on inputs that they may not overwrite.
#pragma once
#include <atomic>

#include "ops/def/native_tensor.h"

namespace dtorch {

extern std::atomic<bool> prepared_is_checked;

// True: every result of a prepared kernel, and of a kernel that may take over memory of an input, must have the bytes
// and strides that the operator's kernel gives for the same inputs when all of them are needed afterwards; else the
// call fails (InternalError). For whether memory may be taken over depends on what other threads have done with it by
// then, which must not show, neither now nor in what a later kernel makes of other strides. Costs the kernels' time
// once more. Any thread; this process's nodes.
inline void set_check_prepared(bool on) { prepared_is_checked.store(on); }
inline bool check_prepared() { return prepared_is_checked.load(std::memory_order_relaxed); }

// Throws InternalError that says so when an output hasn't the bytes and strides that it should have.
void require_same_result(const NativeTensor& expected, const NativeTensor& output);

}  // namespace dtorch
