// fold_parts and fill_identity, against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/comm/transfer.h"

namespace dtorch {
namespace {

template <class T>
std::vector<T> fold(const std::vector<std::vector<T>>& parts, ReduceOp reduce, int64_t divisor = 1) {
  std::vector<const std::byte*> pointers;
  for (const std::vector<T>& part : parts)
    pointers.push_back(part.empty() ? nullptr : reinterpret_cast<const std::byte*>(part.data()));
  size_t count = 0;
  for (const std::vector<T>& part : parts) count = std::max(count, part.size());
  std::vector<T> result(count);
  fold_parts(pointers, static_cast<int64_t>(count), dtype_of<T>(), reduce, divisor,
             reinterpret_cast<std::byte*>(result.data()));
  return result;
}

TEST(Fold, SumsInTheOrderGiven) {
  // 1e8 + 1 - 1e8 depends on the order.
  EXPECT_EQ(fold<float>({{1e8F}, {1.F}, {-1e8F}}, kSum), (std::vector<float>{0.F}));
  EXPECT_EQ(fold<float>({{1e8F}, {-1e8F}, {1.F}}, kSum), (std::vector<float>{1.F}));
}

TEST(Fold, SumsManyElementsLikeAPlainLoop) {
  std::vector<std::vector<float>> parts(3, std::vector<float>(5000));
  std::vector<float> expected(5000);
  for (size_t i = 0; i < 5000; ++i) {
    for (size_t k = 0; k < 3; ++k) parts[k][i] = std::sin(static_cast<float>(i * (k + 1)));
    expected[i] = parts[0][i] + parts[1][i] + parts[2][i];
  }
  EXPECT_EQ(fold(parts, kSum), expected);
}

TEST(Fold, HalfTypesAreRoundedOnce) {
  // In bfloat16 itself 256 + 1 = 256, however often 1 is added; in float32 the sum is 260.
  const std::vector<std::vector<BFloat16>> parts{{256.F}, {1.F}, {1.F}, {1.F}, {1.F}};
  EXPECT_EQ(float(fold(parts, kSum)[0]), 260.F);
  const std::vector<std::vector<Float16>> halves{{2048.F}, {1.F}, {1.F}, {1.F}, {1.F}};
  EXPECT_EQ(float(fold(halves, kSum)[0]), 2052.F);
  EXPECT_EQ(float(fold(halves, kAvg, 4)[0]), 513.F);
}

TEST(Fold, LargestAndSmallestKeepNaNs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> parts{{1.F, nan, 2.F}, {3.F, 1.F, nan}, {2.F, 5.F, 1.F}};
  const std::vector<float> largest = fold(parts, kMax);
  EXPECT_EQ(largest[0], 3.F);
  EXPECT_TRUE(std::isnan(largest[1]) && std::isnan(largest[2]));
  EXPECT_EQ(fold(parts, kMin)[0], 1.F);
  EXPECT_TRUE(std::isnan(fold(parts, kMin)[1]));
}

TEST(Fold, IntegersAddUpIn64BitsAndWrap) {
  EXPECT_EQ(fold<int8_t>({{100}, {100}, {-100}}, kSum), (std::vector<int8_t>{100}));
  EXPECT_EQ(fold<int32_t>({{7}, {8}}, kAvg, 2), (std::vector<int32_t>{7}));
  const int64_t largest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(fold<int64_t>({{largest}, {1}}, kSum), (std::vector<int64_t>{std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(fold<uint8_t>({{200}, {7}}, kMax), (std::vector<uint8_t>{200}));
}

TEST(Fold, BoolsSumToTheirOr) {
  const bool a[3] = {false, true, true}, b[3] = {false, false, true};
  const std::byte* parts[] = {reinterpret_cast<const std::byte*>(a), reinterpret_cast<const std::byte*>(b)};
  bool result[3];
  fold_parts(parts, 3, kBool, kSum, 1, reinterpret_cast<std::byte*>(result));
  EXPECT_FALSE(result[0]);
  EXPECT_TRUE(result[1]);
  EXPECT_TRUE(result[2]);
}

TEST(Fold, AbsentPartsAreTheIdentity) {
  EXPECT_EQ(fold<float>({{}, {2.F}, {}, {3.F}}, kSum), (std::vector<float>{5.F}));
  const std::byte* nothing[] = {nullptr, nullptr};
  float result = 5;
  fold_parts(nothing, 1, kFloat32, kMax, 1, reinterpret_cast<std::byte*>(&result));
  EXPECT_EQ(result, -std::numeric_limits<float>::infinity());
}

TEST(Fold, TheResultMayBeOneOfTheParts) {
  std::vector<double> a(3000, 1.5), b(3000, 2.0);
  const std::byte* parts[] = {reinterpret_cast<const std::byte*>(a.data()),
                              reinterpret_cast<const std::byte*>(b.data())};
  fold_parts(parts, 3000, kFloat64, kSum, 1, reinterpret_cast<std::byte*>(b.data()));
  EXPECT_EQ(b, std::vector<double>(3000, 3.5));
}

TEST(FillIdentity, IsNeutralForEveryReductionAndType) {
  for (int code = 0; code < kNumDTypes; ++code) {
    const DType dtype = static_cast<DType>(code);
    for (ReduceOp reduce : {kSum, kAvg, kMax, kMin}) {
      std::vector<std::byte> identity(static_cast<size_t>(size_of(dtype))), value(identity.size()),
          result(identity.size());
      fill_identity(identity.data(), 1, dtype, reduce);
      visit_dtype(dtype, [&]<class T>() {
        const T one(1);
        std::memcpy(value.data(), &one, sizeof(T));
      });
      const std::byte* parts[] = {identity.data(), value.data()};
      fold_parts(parts, 1, dtype, reduce, 1, result.data());
      EXPECT_EQ(result, value) << name_of(dtype) << " " << name_of(reduce);
    }
  }
}

}  // namespace
}  // namespace dtorch
