#include "runtime/kernel_source/any_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

namespace dtorch::kernel_source {
namespace {

// Words, ascending.
constexpr std::string_view kAnyDevice =
    " abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool_grad adaptive_max_pool2d"
    " adaptive_max_pool_grad add add_scaled addbmm addcdiv addcmul addmm addmv addr all amax amin any"
    " arg_candidates arg_combine argmax asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool_grad"
    " baddbmm binary_cross_entropy binary_cross_entropy_with_logits bincount bitwise_and"
    " bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cache_append"
    " cached_attention cat ceil chunk clamp clamp_tensor contiguous contract_leading conv1d conv2d"
    " conv_input_grad conv_transpose1d conv_transpose2d conv_weight_grad copysign cos cosh count_valid"
    " cross cross_entropy cross_entropy_grad cross_entropy_max cross_entropy_pick cross_entropy_rows"
    " cross_entropy_sumexp cummax cummin cumprod cumsum diag_embed diagonal div div_number einsum elu"
    " elu_gradient embedding embedding_grad eq erf erfc erfinv exp exp2 expand expm1 extreme_shifted"
    " extreme_totals flip floor floor_divide fmax fmin fmod fold frac gather ge gelu gelu_gradient glu gt"
    " halo_edges halo_edges_grad halo_windows halo_windows_grad hardshrink hardshrink_gradient hardsigmoid"
    " hardsigmoid_gradient hardswish hardswish_gradient hardtanh hardtanh_gradient heaviside histc"
    " huber_loss hypot index index_put interpolate interpolate_grad isclose isfinite isin isinf isnan"
    " kl_div layer_norm layer_norm_grad le leaky_relu leaky_relu_gradient lerp lerp_number linear log"
    " log10 log1p log2 log_softmax log_softmax_grad logaddexp logcumsumexp logical_and logical_not"
    " logical_or logical_xor logsigmoid logsigmoid_gradient logsumexp lt masked_attention"
    " masked_attention_grad masked_scatter masked_scatter_grad matmul max max_pool1d max_pool2d"
    " max_pool_grad maximum mean minimum mish mish_gradient moe_experts moe_experts_grad moe_experts_rows"
    " moe_experts_rows_grad mul mul_number multi_margin_loss multi_margin_loss_grad nan_to_num ne neg"
    " nll_grad nll_loss nll_total norm_apply norm_grad_sums norm_input_grad norm_squares norm_sums"
    " norm_weight_grad one_hot pad pad_from pad_from_gradient permute pow pow_number prelu_aligned prod"
    " reciprocal relu relu_gradient remainder repeat repeat_gradient repeat_interleave reshape"
    " ring_attention_grad_step ring_attention_step ring_join ring_split rms_norm rms_norm_grad roll"
    " rotary_at rotary_embedding round rsqrt scale_all scaled_dot_product_attention"
    " scaled_dot_product_attention_grad scan_shifted scan_totals scatter scatter_add scatter_along"
    " scatter_one scatter_reduce searchsorted sgd_step sigmoid sigmoid_gradient sign silu silu_gradient"
    " sin sinh slice slice_gradient slice_scatter smooth_l1_loss soft_margin_loss softmax softmax_grad"
    " softplus softplus_gradient softshrink softshrink_gradient sort split sqrt square squared_deviations"
    " squeeze std std_mean sub sum sum_of_squares tan tanh tanh_gradient target_weight threshold"
    " threshold_gradient to topk topk_gates topk_gates_grad topk_of_candidates tril triu trunc"
    " trunc_divide unbind unfold unfold_dim unfold_dim_gradient unsqueeze var var_mean vector_norm where"
    " xlogy"
    " ";

// Ascending.
constexpr std::string_view kOwnKernels[] = {"adamw_step", "dropout", "full", "rand", "randint", "randn"};

constexpr const char* kMade = "made of attributes alone, and copied to the device";
constexpr const char* kRandom = "their draws by the counter-based generator have no kernel for a device";
constexpr const char* kRouted = "how many rows go where is decided row by row";
constexpr const char* kRecurrence = "a recurrence along a dim that LibTorch has no kernel for";
constexpr const char* kHash = "a checksum of all bytes";
constexpr const char* kFiles = "they read or write files";

struct OnHost {
  std::string_view op;
  const char* reason;
};
constexpr OnHost kOnHost[] = {
    {"add_gumbel", kRandom},       {"arange", kMade},
    {"bernoulli", kRandom},        {"bernoulli_p", kRandom},
    {"checkpoint_finish", kFiles}, {"checkpoint_open", kFiles},
    {"checkpoint_prove", kFiles},  {"checkpoint_write", kFiles},
    {"exponential", kRandom},      {"eye", kMade},
    {"file_slice", kFiles},        {"from_host", kMade},
    {"gguf_slice", kFiles},        {"gumbel", kRandom},
    {"hdf5_slice", kFiles},        {"linspace", kMade},
    {"logspace", kMade},           {"moe_combine", kRouted},
    {"moe_dispatch", kRouted},     {"multinomial", kRandom},
    {"normal", kRandom},           {"normal_of", kRandom},
    {"poisson", kRandom},          {"randperm", kRandom},
    {"replica_hash", kHash},       {"scan_gradient", kRecurrence},
    {"token_batch", kFiles},       {"triangle_indices", kMade},
    {"uniform", kRandom},
};

}  // namespace

bool runs_on_any_device(std::string_view op) {
  return kAnyDevice.find(fmt::format(" {} ", op)) != std::string_view::npos;
}
bool has_own_kernel(std::string_view op) { return std::ranges::binary_search(kOwnKernels, op); }

const char* reason_for_host(std::string_view op) {
  const auto* const found = std::ranges::find(kOnHost, op, &OnHost::op);
  return found == std::end(kOnHost) ? nullptr : found->reason;
}

std::string table_of_host_operators() {
  std::map<std::string_view, std::vector<std::string_view>> by_reason;
  for (const OnHost& operator_there : kOnHost) by_reason[operator_there.reason].push_back(operator_there.op);
  std::string text =
      fmt::format("{} operators run on the host:\n\n| why | operators |\n|---|---|\n", std::size(kOnHost));
  for (const auto& [reason, operators] : by_reason)
    text += fmt::format("| {} | {} |\n", reason, fmt::join(operators, ", "));
  return text;
}

}  // namespace dtorch::kernel_source
