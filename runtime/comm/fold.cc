// Folds of packed parts, in the order given, block by block so that accumulators stay in cache. Plain loops that the
// compiler vectorises; half types are widened by a block. Pure functions, any thread.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "runtime/comm/transfer.h"

namespace dtorch {
namespace {

constexpr int64_t kBlock = 1024;

template <class T>
struct Accumulator {
  using type = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
};
template <>
struct Accumulator<Float16> {
  using type = float;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};

template <class T>
auto load(T value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return std::bit_cast<float>(uint32_t{value.bits} << 16);  // inline: vectorises
  else
    return static_cast<typename Accumulator<T>::type>(value);
}

template <class T, class A>
T store(A value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != 0;
  else
    return T(value);
}

template <ReduceOp kReduce, class A>
A combine(A a, A b) {
  if constexpr (kReduce == ReduceOp::kSum) return std::is_integral_v<A> ? A(uint64_t(a) + uint64_t(b)) : a + b;
  // A NaN stays, whichever side it is on, as in LibTorch.
  else if constexpr (kReduce == ReduceOp::kMax)
    return (b != b || b > a) ? b : a;
  else
    return (b != b || b < a) ? b : a;
}

template <class T>
T identity_of(ReduceOp reduce) {
  using A = typename Accumulator<T>::type;
  if (reduce == ReduceOp::kSum || reduce == ReduceOp::kAvg) return store<T>(A(0));
  const bool lowest = reduce == ReduceOp::kMax;
  if constexpr (std::is_integral_v<T>) {
    return lowest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  } else {
    return T(lowest ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::infinity());
  }
}

template <class T>
void fill_block(T* out, int64_t count, ReduceOp reduce) {
  std::fill_n(out, count, identity_of<T>(reduce));
}

template <class T, ReduceOp kReduce>
void fold(std::span<const std::byte* const> parts, int64_t first_element, int64_t end, int64_t divisor,
          std::byte* result) {
  using A = typename Accumulator<T>::type;
  std::array<A, kBlock> sums;
  T* out = reinterpret_cast<T*>(result);
  for (int64_t begin = first_element; begin < end; begin += kBlock) {
    const int64_t size = std::min(kBlock, end - begin);
    bool first = true;
    for (const std::byte* part : parts) {
      if (part == nullptr) continue;
      const T* in = reinterpret_cast<const T*>(part) + begin;
      if (first) {
        for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] = load(in[i]);
      } else {
        for (int64_t i = 0; i < size; ++i) {
          sums[static_cast<size_t>(i)] = combine<kReduce>(sums[static_cast<size_t>(i)], static_cast<A>(load(in[i])));
        }
      }
      first = false;
    }
    if (first) {
      fill_block(out + begin, size, kReduce);
      continue;
    }
    if (divisor != 1) {
      for (int64_t i = 0; i < size; ++i) sums[static_cast<size_t>(i)] /= static_cast<A>(divisor);
    }
    for (int64_t i = 0; i < size; ++i) out[begin + i] = store<T>(sums[static_cast<size_t>(i)]);
  }
}

}  // namespace

void fold_parts(std::span<const std::byte* const> parts, int64_t count, DType dtype, ReduceOp reduce, int64_t divisor,
                std::byte* result) {
  fold_range(parts, 0, count, dtype, reduce, divisor, result);
}

void fold_range(std::span<const std::byte* const> parts, int64_t begin, int64_t end, DType dtype, ReduceOp reduce,
                int64_t divisor, std::byte* result) {
  visit_dtype(dtype, [&]<class T>() {
    switch (reduce) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg:
        return fold<T, ReduceOp::kSum>(parts, begin, end, divisor, result);
      case ReduceOp::kMax:
        return fold<T, ReduceOp::kMax>(parts, begin, end, divisor, result);
      case ReduceOp::kMin:
        return fold<T, ReduceOp::kMin>(parts, begin, end, divisor, result);
    }
  });
}

void fill_identity(std::byte* packed, int64_t count, DType dtype, ReduceOp reduce) {
  visit_dtype(dtype, [&]<class T>() { fill_block(reinterpret_cast<T*>(packed), count, reduce); });
}

}  // namespace dtorch
