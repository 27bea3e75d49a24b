// Positions, ids and classes that must lie in a range, where they aren't in the host's memory. Empty in builds without
// kernels. (Kernels for the CPU look at them one by one.)
#pragma once
#include "dtorch/kernel.h"

#if DTORCH_WITH_KERNELS
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dtorch {

// What LibTorch's operator dtorch::check_range(Tensor extremes, int first, int end, str what, str why) is called. The
// library of a device that runs behind the host defines it: `extremes` are the least and the greatest of the values,
// and the stream's failure is told when they are known. Where nobody does, the call waits for them.
inline constexpr const char* kCheckRange = "check_range";
inline std::string text_of_range(int64_t value, int64_t first, int64_t end, std::string_view what,
                                 std::string_view why) {
  return std::string(what) + " " + std::to_string(value) + " is outside [" + std::to_string(first) + ", " +
         std::to_string(end) + ")" + std::string(why);
}
// What is wrong with them; "" when nothing is.
inline std::string problem_of_range(int64_t least, int64_t greatest, int64_t first, int64_t end, std::string_view what,
                                    std::string_view why) {
  if (least < first) return text_of_range(least, first, end, what, why);
  return greatest >= end ? text_of_range(greatest, first, end, what, why) : "";
}

// The int64 values of a device's tensor: a value outside [first, end) that isn't `ignored` is a failure, "WHAT 7 is
// outside [0, 5)WHY", and is moved inside, so that no kernel reads or writes elsewhere.
at::Tensor checked_on_device(const at::Tensor& values, int64_t first, int64_t end, std::string_view what,
                             std::optional<int64_t> ignored = {}, std::string_view why = "");

// Contiguous int64 targets; those that aren't ignore_index must be in [0, classes).
at::Tensor checked_targets(const at::Tensor& targets, int64_t ignore_index, int64_t classes);

}  // namespace dtorch
#endif
