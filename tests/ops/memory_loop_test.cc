// The loops of small sums, differences, products and quotients (ops/math/memory_loop.h): every length around the width
// of a vector and their limit, operands of one element, numbers. What they give is compared bit for bit, here with one
// C++ operation an element, and by the worker (prepared_check.h) with the operators' kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "dtorch/dtorch.h"
#include "runtime/worker/prepared_check.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
namespace {

using MemoryLoopTest = KernelTest;

// With the check a stream doesn't go by pointers alone.
struct WithoutCheck {
  WithoutCheck() { set_check_prepared(false); }
  ~WithoutCheck() { set_check_prepared(true); }
};

// Ordinary numbers and, in turn, those that are none.
template <class T>
std::vector<T> mixed_values(size_t count, size_t start) {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> special = {T{0},  -T{0},         Limits::infinity(), -Limits::infinity(), Limits::denorm_min(),
                                  T{-1}, Limits::max(), Limits::lowest(),   Limits::epsilon()};
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t k = start + 7 * i;
    values[i] = k % 5 == 0 ? special[k % special.size()] : static_cast<T>(std::sin(static_cast<double>(k)) * 100);
  }
  return values;
}

template <class T>
void expect_same_bits(const HostTensor& got, const std::vector<T>& expected, const std::string& what) {
  ASSERT_EQ(got.num_bytes(), static_cast<int64_t>(expected.size() * sizeof(T))) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    const T value = got.element<T>(static_cast<int64_t>(i));
    if (std::isnan(value) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::memcmp(&value, &expected[i], sizeof(T)), 0) << what << ", element " << i;
  }
}

template <class T>
struct Case {
  const char* name;
  Tensor (*tensors)(const Tensor& a, const Tensor& b);
  T (*elements)(T a, T b);
};

template <class T>
std::vector<Case<T>> cases() {
  return {{"a + b", [](const Tensor& a, const Tensor& b) { return a + b; }, [](T a, T b) -> T { return a + b; }},
          {"a - b", [](const Tensor& a, const Tensor& b) { return a - b; }, [](T a, T b) -> T { return a - b; }},
          {"a * b", [](const Tensor& a, const Tensor& b) { return a * b; }, [](T a, T b) -> T { return a * b; }},
          {"a / b", [](const Tensor& a, const Tensor& b) { return a / b; }, [](T a, T b) -> T { return a / b; }}};
}

template <class T>
void check_length(size_t count) {
  const auto size = static_cast<int64_t>(count);
  const std::vector<T> a = mixed_values<T>(count, 1), b = mixed_values<T>(count, 4);
  const Tensor x = from_host(HostTensor::of<T>({size}, a)), y = from_host(HostTensor::of<T>({size}, b));
  const Tensor one = from_host(HostTensor::of<T>({1}, {b[0]}));
  for (const Case<T>& each : cases<T>()) {
    const std::string what = std::string(each.name) + " of " + std::to_string(count);
    std::vector<T> both(count), second(count), first(count);
    for (size_t i = 0; i < count; ++i) {
      both[i] = each.elements(a[i], b[i]);
      second[i] = each.elements(a[i], b[0]);
      first[i] = each.elements(b[0], a[i]);
    }
    expect_same_bits(each.tensors(x, y).to_host(), both, what);
    expect_same_bits(each.tensors(x, one).to_host(), second, what + ", one element second");
    expect_same_bits(each.tensors(one, x).to_host(), first, what + ", one element first");
  }
  std::vector<T> scaled(count), shifted(count);
  for (size_t i = 0; i < count; ++i) {
    scaled[i] = a[i] * T(0.75);
    shifted[i] = T(3) - a[i];
  }
  expect_same_bits((x * 0.75).to_host(), scaled, "a * 0.75");
  expect_same_bits((3 - x).to_host(), shifted, "3 - a");
}

TEST_F(MemoryLoopTest, GiveOneOperationAnElementAtEveryLength) {
  for (size_t count : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 64, 100, 2048, 2049, 4096, 4097}) {
    check_length<float>(count);
    check_length<double>(count);
  }
}

// Operands of other dtypes are cast first, as LibTorch casts them.
template <class From, class T>
void check_cast(size_t count) {
  const auto size = static_cast<int64_t>(count);
  std::vector<From> whole(count);
  for (size_t i = 0; i < count; ++i) whole[i] = static_cast<From>(i * i % 251 + (i % 3 == 0 ? 0.3 : 0.0));
  const std::vector<T> b = mixed_values<T>(count, 4);
  const Tensor x = from_host(HostTensor::of<From>({size}, whole)), y = from_host(HostTensor::of<T>({size}, b));
  for (const Case<T>& each : cases<T>()) {
    std::vector<T> expected(count);
    for (size_t i = 0; i < count; ++i) expected[i] = each.elements(static_cast<T>(whole[i]), b[i]);
    const std::string what = std::string(each.name) + " of two dtypes and " + std::to_string(count);
    expect_same_bits(each.tensors(x, y).to_host(), expected, what);
  }
}

void check_casts(size_t count) {
  check_cast<int32_t, float>(count);
  check_cast<int64_t, float>(count);
  check_cast<uint8_t, double>(count);
  check_cast<float, double>(count);
}

TEST_F(MemoryLoopTest, OperandsOfOtherDtypesAreCastFirst) {
  for (size_t count : {1, 5, 16, 100, 2048, 5000}) check_casts(count);
  const Tensor three = from_host(HostTensor::of<int64_t>({2}, {3, 1'000'000'007})),
               two = full({2}, 2, {.dtype = kInt64});
  expect_same_bits((three / two).to_host(), std::vector<float>{1.5f, 1'000'000'007 / 2.0f}, "a quotient of integers");
  const Tensor flags = from_host(HostTensor::of<float>({2}, {0, 1})) > 0.5;
  expect_same_bits((flags + ones({2})).to_host(), std::vector<float>{1, 2}, "a bool and a float");
}

TEST_F(MemoryLoopTest, TheSameWhenAStreamGoesByPointersAlone) {
  const WithoutCheck without_check;
  for (size_t count : {1, 9, 1000, 5000}) check_length<float>(count);
  check_length<double>(33);
  check_casts(33);
}

TEST_F(MemoryLoopTest, ALongChainOverwritesItsOwnMemory) {
  const WithoutCheck without_check;
  const Tensor b = full({13}, 0.5), c = full({13}, -0.25);
  Tensor y = zeros({13});
  float expected = 0;
  for (int i = 0; i < 1000; ++i) {
    y = (y + b) * b - c;
    expected = (expected + 0.5f) * 0.5f + 0.25f;
  }
  expect_same_bits(y.to_host(), std::vector<float>(13, expected), "a chain");
}

}  // namespace
}  // namespace dtorch::test
