// What kernels of this room share. Empty in builds without kernels.
#pragma once
#include "dtorch/kernel.h"
#include "ops/math/operators.h"
#include "ops/math/prepared.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ScalarOps.h>
#include <c10/core/Scalar.h>

#include <limits>

namespace dtorch::math {

// Whether LibTorch would give a new result the strides of input i, an elementwise operator's with the result's sizes.
inline bool has_strides_of_result(const KernelContext& context, size_t i) {
  const at::Tensor& x = input(context, i);
  bool same = x.is_non_overlapping_and_dense(), contiguous = x.is_contiguous();
  for (size_t k = 0; k < context.num_inputs(); ++k) {
    const at::Tensor& other = input(context, k);
    if (k == i || other.dim() == 0) continue;
    same &= other.sizes() == x.sizes() && other.strides() == x.strides();
    contiguous &= other.is_contiguous();
  }
  return same || contiguous;
}

// Input i may be overwritten with output 0: handed over, same sizes and dtype, and the result is laid out in memory as
// it would be otherwise (what other threads still hold mustn't show: matrix products round by strides).
inline bool can_overwrite(const KernelContext& context, size_t i) {
  return context.may_reuse(i) && context.input_meta(i).dtype == context.output_meta(0).dtype &&
         context.input_box(i).size == context.output_box(0).size && has_strides_of_result(context, i);
}

inline at::Scalar number_of(const KernelContext& context, size_t i, int64_t kind) {
  return kind == kFloating ? at::Scalar(context.scalar(i).as_double()) : at::Scalar(context.scalar(i).as_int());
}

// No value is less (of_max; else: greater): what an empty part contributes to a maximum or minimum.
inline at::Scalar worst_value(DType dtype, bool of_max) {
  if (dtype == kBool) return at::Scalar(!of_max);
  if (is_floating(dtype))
    return at::Scalar(of_max ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
  return visit_dtype(dtype, [&]<class T>() {
    using Limits = std::numeric_limits<std::conditional_t<std::is_integral_v<T>, T, int>>;
    return at::Scalar(static_cast<int64_t>(of_max ? Limits::lowest() : Limits::max()));
  });
}

// Op::run(a, b) and Op::run_out(a, b, out), where out may be a or b. One operand may be a number (BinaryAttrs).
template <class Op>
void binary_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<BinaryAttrs>();
  at::Tensor wrapped;
  const at::Tensor* a = &input(context, 0);
  const at::Tensor* b = &wrapped;
  if (attributes.number == kNoNumber) {
    b = &input(context, 1);
  } else {
    wrapped = at::native::wrapped_scalar_tensor(number_of(context, 0, attributes.number));
    if (attributes.reversed) std::swap(a, b);
  }
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    if (!can_overwrite(context, i)) continue;
    at::Tensor out = input(context, i);
    Op::run_out(*a, *b, out);
    context.output(0) = context.input(i);
    return;
  }
  set_output(context, 0, Op::run(*a, *b));
}

// kRun(x) and kRunOut(x, out), where out may be x.
template <auto kRun, auto kRunOut>
void unary_kernel(KernelContext& context) {
  if (can_overwrite(context, 0)) {
    at::Tensor out = input(context, 0);
    kRunOut(input(context, 0), out);
    context.output(0) = context.input(0);
    return;
  }
  set_output(context, 0, kRun(input(context, 0)));
}

}  // namespace dtorch::math
#endif
