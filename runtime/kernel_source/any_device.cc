#include "runtime/kernel_source/any_device.h"

#include <algorithm>

namespace dtorch::kernel_source {
namespace {

// Ascending.
constexpr std::string_view kOperators[] = {"addbmm",
                                           "chunk",
                                           "contiguous",
                                           "count_valid",
                                           "diag_embed",
                                           "diagonal",
                                           "einsum",
                                           "expand",
                                           "isin",
                                           "isnan",
                                           "linear",
                                           "log_softmax",
                                           "log_softmax_grad",
                                           "pad",
                                           "permute",
                                           "repeat",
                                           "repeat_interleave",
                                           "reshape",
                                           "rms_norm",
                                           "scatter_one",
                                           "slice",
                                           "slice_gradient",
                                           "slice_scatter",
                                           "softmax",
                                           "softmax_grad",
                                           "split",
                                           "squeeze",
                                           "to",
                                           "unbind",
                                           "unfold_dim",
                                           "unsqueeze"};

}  // namespace

bool runs_on_any_device(std::string_view op) { return std::ranges::binary_search(kOperators, op); }

}  // namespace dtorch::kernel_source
