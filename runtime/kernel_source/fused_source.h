// The source of a run of elementwise operators (ops/def/fused_program.h) as one device kernel: every thread takes
// a few elements through all members in registers, rounding each result to its dtype as if it had been stored, so that
// what comes out is, bit for bit, what the members give one after the other. Pure.
//
// A kernel's parameters: pointers to the program's inputs, then to its outputs, the calls' numbers (f64 or i64), and
// the number of elements (i64). Outputs may be inputs of their size.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/def/fused_program.h"

namespace dtorch::kernel_source {

struct FusedSource {
  std::string name;                      // of the kernel for pointers that are multiples of 16 bytes
  std::string unaligned_name;            // for any others
  std::string text;                      // goes behind prelude()
  int32_t width = 1;                     // elements that a thread of the first takes at a time; the second: one
  std::vector<bool> number_is_floating;  // by number, in the order of the calls
};

// Parameters of a kernel take at most so much.
inline constexpr size_t kMaxParameterBytes = 4000;

// False when the operator has none, or none for these dtypes: it has to run by itself.
bool has_formula(const OperatorDef& def, const LocalOperator& local);
// Null when a member has no formula, or there are too many parameters.
std::optional<FusedSource> fused_source(const FusedProgram& program, const std::string& name);

}  // namespace dtorch::kernel_source
