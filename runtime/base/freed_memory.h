// What the C library does with memory that is freed.
#pragma once

namespace dtorch {

// From here on freed memory stays with the process for its next tensors. By default a large block goes back to the
// kernel and comes back as pages that fault one by one, which for gathered parameters costs more than the arithmetic.
// The process holds its peak until it ends. Call it before threads are started. Does nothing where the environment sets
// malloc's parameters (MALLOC_*, GLIBC_TUNABLES, a preloaded library), or the C library isn't glibc.
void keep_freed_memory();

}  // namespace dtorch
