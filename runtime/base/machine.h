// Which machine this is, as far as clocks go.
#pragma once
#include <cstdint>

namespace dtorch {

// Processes with the same number share a kernel and thus its clock. 0 when that can't be told.
uint64_t machine_number();

}  // namespace dtorch
