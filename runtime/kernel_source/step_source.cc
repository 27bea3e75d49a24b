#include "runtime/kernel_source/step_source.h"

#include <fmt/format.h>

#include "runtime/kernel_source/fused_source.h"
#include "runtime/kernel_source/prelude.h"

namespace dtorch::kernel_source {
namespace {

static_assert(sizeof(AdamwList) + 8 * sizeof(double) <= kMaxParameterBytes);
static_assert(sizeof(FoldList) + 3 * sizeof(int64_t) <= kMaxParameterBytes);

constexpr const char* kAdamw = R"(
struct AdamwTensor_{type} {{ const {type} *p0, *g0, *m0, *v0; {type} *p1, *m1, *v1; i64 n; }};
struct AdamwList_{type} {{ AdamwTensor_{type} tensors[{count}]; }};
DT_KERNEL {name}(AdamwList_{type} list, f64 beta1, f64 rest1, f64 beta2, f64 rest2, f64 epsilon, f64 decay,
                 f64 step_size, f64 correction, const i64* number, f64 lr) {{
  const AdamwTensor_{type}& t = list.tensors[DT_ROW];
  if (number != 0) {{
    const f64 step = (f64)*number;
    step_size = lr / (1 - pow(beta1, step));
    correction = sqrt(1 - pow(beta2, step));
    for (i64 k = DT_THREAD; step == 0 && k < t.n; k += DT_THREADS) {{
      t.p1[k] = t.p0[k];
      t.m1[k] = t.m0[k];
      t.v1[k] = t.v0[k];
    }}
    if (step == 0) return;
  }}
  const {math} b1 = ({math})beta1, r1 = ({math})rest1, b2 = ({math})beta2, r2 = ({math})rest2, eps = ({math})epsilon;
  const {math} keep = ({math})decay, size = ({math})step_size, root = ({math})correction;
  for (i64 k = DT_THREAD; k < t.n; k += DT_THREADS) {{
    const {math} p = widen(t.p0[k]), g = widen(t.g0[k]), m = widen(t.m0[k]), v = widen(t.v0[k]);
    const {math} mk = b1 * m + r1 * g, vk = b2 * v + r2 * g * g;
    t.m1[k] = To<{type}>::of(mk);
    t.v1[k] = To<{type}>::of(vk);
    t.p1[k] = To<{type}>::of(p * keep - size * mk / (dt_sqrt(vk) / root + eps));
  }}
}}
)";

constexpr const char* kFold = R"(
struct FoldList_{name} {{ i64 count; const void* parts[{count}]; }};
DT_KERNEL {name}(FoldList_{name} list, {result}* to, i64 n, i64 divisor) {{
  for (i64 k = DT_THREAD; k < n; k += DT_THREADS) {{
    {sum} all = ({sum})widen(((const {first}*)list.parts[0])[k]);
    for (i64 part = 1; part < list.count; ++part) {{
      const {sum} next = ({sum})widen(((const {type}*)list.parts[part])[k]);
      all = {combine};
    }}
    if (divisor != 1) all = all / ({sum})divisor;
    to[k] = To<{result}>::of(all);
  }}
}}
)";

}  // namespace

StepSource adamw_source(DType dtype) {
  const std::string name = std::string("adamw_") + type_name(dtype);
  return {name,
          fmt::format(fmt::runtime(kAdamw), fmt::arg("type", type_name(dtype)), fmt::arg("math", math_type_name(dtype)),
                      fmt::arg("name", name), fmt::arg("count", AdamwList::kMaxTensors))};
}

StepSource fold_source(DType dtype, ReduceOp reduce, FoldStage stage) {
  const char* combine = is_floating(dtype) ? "all + next" : "(i64)((u64)all + (u64)next)";
  const char* word = "sum";
  // A NaN stays, whichever side it is on.
  if (reduce == ReduceOp::kMax) {
    combine = "next != next || next > all ? next : all";
    word = "max";
  } else if (reduce == ReduceOp::kMin) {
    combine = "next != next || next < all ? next : all";
    word = "min";
  }
  const DType sum = accumulation_dtype(dtype);
  const std::string name =
      fmt::format("fold_{}_{}{}{}", word, type_name(dtype), stage.is_first ? "" : "_on", stage.is_last ? "" : "_part");
  return {name, fmt::format(fmt::runtime(kFold), fmt::arg("type", type_name(dtype)), fmt::arg("name", name),
                            fmt::arg("sum", type_name(sum)), fmt::arg("combine", combine),
                            fmt::arg("first", type_name(stage.is_first ? dtype : sum)),
                            fmt::arg("result", type_name(stage.is_last ? dtype : sum)),
                            fmt::arg("count", FoldList::kMaxParts))};
}

}  // namespace dtorch::kernel_source
