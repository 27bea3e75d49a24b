#include "runtime/kernel_source/any_device.h"

#include <algorithm>

namespace dtorch::kernel_source {
namespace {

// Ascending.
constexpr std::string_view kOperators[] = {
    "transpose",
};

}  // namespace

bool runs_on_any_device(std::string_view op) { return std::ranges::binary_search(kOperators, op); }

}  // namespace dtorch::kernel_source
