#include "ops/create/checked_index.h"

#if DTORCH_WITH_KERNELS
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace dtorch {
namespace {

using Check = void(const at::Tensor&, int64_t, int64_t, c10::string_view, c10::string_view);

void check(const at::Tensor& values, int64_t first, int64_t end, std::string_view what, std::string_view why) {
  const auto [least, greatest] = at::aminmax(values);
  const at::Tensor extremes = at::stack({least, greatest});
  // Not kept from a first call: libraries are loaded at any time.
  const auto later = c10::Dispatcher::singleton().findSchema({std::string("dtorch::") + kCheckRange, ""});
  if (later) return later->typed<Check>().call(extremes, first, end, what, why);
  const at::Tensor host = extremes.cpu();
  const std::string problem = problem_of_range(host[0].item<int64_t>(), host[1].item<int64_t>(), first, end, what, why);
  if (!problem.empty()) throw RuntimeFault(problem);
}

}  // namespace

at::Tensor checked_on_device(const at::Tensor& values, int64_t first, int64_t end, std::string_view what,
                             std::optional<int64_t> ignored, std::string_view why) {
  if (values.numel() == 0) return values;
  if (!ignored) {
    check(values, first, end, what, why);
    return values.clamp(first, end - 1);
  }
  const at::Tensor is_ignored = values.eq(*ignored);
  // Of no classes at all, every target is ignored or outside of them.
  const int64_t place = first < end ? first : end - 1;
  const at::Tensor inside = values.masked_fill(is_ignored, place);
  check(inside, std::min(first, place), end, what, why);
  return inside.clamp(std::min(first, place), end - 1).masked_fill(is_ignored, *ignored);
}

at::Tensor checked_targets(const at::Tensor& targets, int64_t ignore_index, int64_t classes) {
  const auto why = [&] { return " and isn't ignore_index " + std::to_string(ignore_index); };
  at::Tensor out = targets.to(at::kLong).contiguous();
  if (!out.is_cpu()) return checked_on_device(out, 0, classes, "target", ignore_index, why());
  const int64_t* data = out.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    if (data[i] != ignore_index && (data[i] < 0 || data[i] >= classes))
      throw RuntimeFault(text_of_range(data[i], 0, classes, "target", why()));
  }
  return out;
}

}  // namespace dtorch
#endif
