#include "ops/nn/attention_kernels.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <limits>

namespace dtorch::attention {
namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

bool is_half(const at::Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16; }
at::Tensor wide(const at::Tensor& x) { return is_half(x) ? x.to(at::kFloat) : x; }

at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const Sight& sight, double scale) {
  at::Tensor scores = at::matmul(wide(q), wide(k).transpose(2, 3)).mul_(scale);
  if (sight.is_causal) scores.add_(at::triu(at::full({q.size(2), k.size(2)}, kUnseen, scores.options()), 1));
  if (sight.mask) scores.add_(*sight.mask);
  return scores;
}
// Rows that see no key are 0.
at::Tensor weights_of(const at::Tensor& scores, const at::Tensor& lse) {
  const at::Tensor sums = lse.unsqueeze(-1);
  return scores.sub(sums).exp_().masked_fill_(sums.eq(kUnseen), 0);
}

// Not every GPU that LibTorch knows has flash attention, and nothing tells which but its error: asked until it fails.
std::atomic<bool>& flash_has_failed() {
  static std::atomic<bool> failed = false;
  return failed;
}
bool may_flash(const at::Tensor& q, const Sight& sight) {
  constexpr int64_t kGreatestWidth = 256, kWidthStep = 8;
  return q.is_cuda() && is_half(q) && !sight.mask && q.size(3) <= kGreatestWidth && q.size(3) % kWidthStep == 0 &&
         !flash_has_failed();
}
template <class Run>
bool run_flash(Run&& run) {
  try {
    run();
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error&) {
    flash_has_failed() = true;
    return false;
  }
}

}  // namespace

std::pair<at::Tensor, at::Tensor> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                         const Sight& sight, double scale) {
  std::pair<at::Tensor, at::Tensor> result;
  if (q.is_cpu()) {
    std::tie(result.first, result.second) =
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, sight.is_causal, sight.mask, scale);
    return result;
  }
  if (may_flash(q, sight) && run_flash([&] {
        const auto flash = at::_scaled_dot_product_flash_attention(q.contiguous(), k.contiguous(), v.contiguous(), 0.0,
                                                                   sight.is_causal, false, scale);
        result = {std::get<0>(flash), std::get<1>(flash)};
      })) {
    return result;
  }
  const at::Tensor scores = scores_of(q, k, sight, scale);
  result.second = at::logsumexp(scores, {3});
  result.first = at::matmul(weights_of(scores, result.second), wide(v)).to(q.scalar_type());
  return result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_gradient(const at::Tensor& g, const at::Tensor& q,
                                                               const at::Tensor& k, const at::Tensor& v,
                                                               const at::Tensor& out, const at::Tensor& lse,
                                                               const Sight& sight, double scale) {
  if (q.is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, out, lse, 0.0, sight.is_causal,
                                                                    sight.mask, scale);
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> result;
  if (may_flash(q, sight) && run_flash([&] {
        const at::Tensor no_dropout = at::zeros({2}, q.options().dtype(at::kUInt64));
        result = at::_scaled_dot_product_flash_attention_backward(
            g.contiguous(), q.contiguous(), k.contiguous(), v.contiguous(), out.contiguous(), lse.contiguous(), {}, {},
            q.size(2), k.size(2), 0.0, sight.is_causal, no_dropout, no_dropout, scale);
      })) {
    return result;
  }
  const at::Tensor weights = weights_of(scores_of(q, k, sight, scale), lse), of_out = wide(g);
  const at::Tensor total = of_out.mul(wide(out)).sum(3, /*keepdim=*/true);
  const at::Tensor of_scores = at::matmul(of_out, wide(v).transpose(2, 3)).sub_(total).mul_(weights).mul_(scale);
  const at::ScalarType type = q.scalar_type();
  return {at::matmul(of_scores, wide(k)).to(type), at::matmul(of_scores.transpose(2, 3), wide(q)).to(type),
          at::matmul(weights.transpose(2, 3), of_out).to(type)};
}

}  // namespace dtorch::attention
#endif
