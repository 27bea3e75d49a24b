// Loops of an elementwise operator on contiguous memory, for few elements: there what LibTorch does before its loop
// begins costs several times what the loop does. Only for operators that are one IEEE operation an element, whose
// result doesn't depend on how it is vectorised. Empty in builds without kernels.
#pragma once
#include "ops/math/prepared.h"

#if DTORCH_WITH_KERNELS
#include <cstddef>
#include <memory>

namespace dtorch::math {

// What is done with one element, or with a vector of them. (By reference: how a wide vector is passed depends on the
// instructions in use.)
struct Sum {
  template <class V>
  [[gnu::always_inline]] static void run(V& result, const V& a, const V& b) {
    result = a + b;
  }
};
struct Difference {
  template <class V>
  [[gnu::always_inline]] static void run(V& result, const V& a, const V& b) {
    result = a - b;
  }
};
struct Product {
  template <class V>
  [[gnu::always_inline]] static void run(V& result, const V& a, const V& b) {
    result = a * b;
  }
};
struct Quotient {
  template <class V>
  [[gnu::always_inline]] static void run(V& result, const V& a, const V& b) {
    result = a / b;
  }
};

// An operand whose step is 0 has one element, which goes with all of the other. The output is an operand, or apart from
// both.
template <class T, class F, size_t kFirstStep, size_t kSecondStep>
[[gnu::always_inline]] inline void loop_over_memory(std::byte* output, const std::byte* first, const std::byte* second,
                                                    size_t count) {
  using Vector [[gnu::vector_size(32), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
  constexpr size_t kWidth = sizeof(Vector) / sizeof(T);
  T* const out = reinterpret_cast<T*>(output);
  const T *const a = reinterpret_cast<const T*>(first), *const b = reinterpret_cast<const T*>(second);
  const T first_single = *a, second_single = *b;
  const Vector first_singles = first_single - Vector{}, second_singles = second_single - Vector{};
  size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Vector& x = kFirstStep == 0 ? first_singles : *reinterpret_cast<const Vector*>(a + i);
    const Vector& y = kSecondStep == 0 ? second_singles : *reinterpret_cast<const Vector*>(b + i);
    F::run(*reinterpret_cast<Vector*>(out + i), x, y);
  }
  for (; i < count; ++i) F::run(out[i], kFirstStep == 0 ? first_single : a[i], kSecondStep == 0 ? second_single : b[i]);
}

template <class T, class F, size_t kFirstStep, size_t kSecondStep>
void plain_memory_loop(std::byte* output, const std::byte* first, const std::byte* second, size_t count) {
  loop_over_memory<T, F, kFirstStep, kSecondStep>(output, first, second, count);
}

#if defined(__x86_64__)
template <class T, class F, size_t kFirstStep, size_t kSecondStep>
[[gnu::target("avx2")]] void wide_memory_loop(std::byte* output, const std::byte* first, const std::byte* second,
                                              size_t count) {
  loop_over_memory<T, F, kFirstStep, kSecondStep>(output, first, second, count);
}
#endif

template <class T, class F, size_t kFirstStep, size_t kSecondStep>
MemoryLoop memory_loop_here() {
#if defined(__x86_64__)
  static const bool is_wide = __builtin_cpu_supports("avx2");
  if (is_wide) return wide_memory_loop<T, F, kFirstStep, kSecondStep>;
#endif
  return plain_memory_loop<T, F, kFirstStep, kSecondStep>;
}

template <class F>
struct LoopsOf {
  template <class T>
  static MemoryLoop of_dtype(bool first_is_single, bool second_is_single) {
    if (first_is_single) return memory_loop_here<T, F, 0, 1>();
    return second_is_single ? memory_loop_here<T, F, 1, 0>() : memory_loop_here<T, F, 1, 1>();
  }
  static MemoryLoop find(DType dtype, bool first_is_single, bool second_is_single) {
    if (dtype == kFloat32) return of_dtype<float>(first_is_single, second_is_single);
    return dtype == kFloat64 ? of_dtype<double>(first_is_single, second_is_single) : nullptr;
  }
};

// casting.cc. Whether an operand hasn't the result's dtype, in which these operators compute.
bool needs_casts(const LocalOperator& local);
// For such a call, of two tensors: null where it is large, or what it computes in is neither float32 nor float64.
// prepare: for the call with operands of one dtype.
using PrepareFn = std::unique_ptr<PreparedKernel> (*)(const LocalOperator& local);
std::unique_ptr<PreparedKernel> prepare_with_casts(const LocalOperator& local, PrepareFn prepare);

// prepare_binary() with loops of its own where that pays.
template <Loop kLoop, class F>
std::unique_ptr<PreparedKernel> prepare_small_binary(const LocalOperator& local) {
  if (needs_casts(local)) return prepare_with_casts(local, prepare_small_binary<kLoop, F>);
  return with_memory_loop(prepare_binary<kLoop>(local), local, LoopsOf<F>::find);
}
template <Loop kLoop, class F>
std::unique_ptr<PreparedKernel> prepare_small_floating_binary(const LocalOperator& local) {
  if (needs_casts(local)) return prepare_with_casts(local, prepare_small_floating_binary<kLoop, F>);
  return with_memory_loop(prepare_floating_binary<kLoop>(local), local, LoopsOf<F>::find);
}

}  // namespace dtorch::math
#endif
