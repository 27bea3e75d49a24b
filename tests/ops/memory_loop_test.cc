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

TEST_F(MemoryLoopTest, TheSameWhenAStreamGoesByPointersAlone) {
  const WithoutCheck without_check;
  for (size_t count : {1, 9, 1000, 5000}) check_length<float>(count);
  check_length<double>(33);
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
