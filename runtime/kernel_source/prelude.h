// What every kernel that is compiled at run time begins with: types, conversions and the formulas of elementwise
// operators, as text. The same text is compiled by NVRTC for a device and, in tests, by the host's compiler, so it
// names nothing of CUDA but behind DT_HOST. Pure.
#pragma once
#include <string>

#include "mesh/dtype.h"

namespace dtorch::kernel_source {

// Where DT_HOST is defined, these come before it: DT_INLINE, DT_KERNEL, DT_THREAD, DT_THREADS, DT_ROW, and functions
// bits_to_float, float_to_bits, f16_to_float, float_to_f16, mul_high on plain types, and those of <math.h>.
const std::string& prelude();

// What the text calls the type that stores `dtype`: "f16".
const char* type_name(DType dtype);
// The type that it is computed in: "f32" for the narrow floats, else itself.
const char* math_type_name(DType dtype);

}  // namespace dtorch::kernel_source
