// Element types, shapes and boxes, small vectors of dims.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mesh/dtype.h"
#include "mesh/placement.h"
#include "mesh/shape.h"

namespace dtorch {
namespace {

TEST(DType, PromotesAsPyTorchDoes) {
  // Rows and columns in the order of the enum: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32,
  // float64.
  constexpr DType u1 = kUInt8, i1 = kInt8, i2 = kInt16, i4 = kInt32, i8 = kInt64, f2 = kFloat16, bf = kBFloat16,
                  f4 = kFloat32, f8 = kFloat64, b1 = kBool;
  const DType expected[kNumDTypes][kNumDTypes] = {
      {b1, u1, i1, i2, i4, i8, f2, bf, f4, f8},  // bool
      {u1, u1, i2, i2, i4, i8, f2, bf, f4, f8},  // uint8
      {i1, i2, i1, i2, i4, i8, f2, bf, f4, f8},  // int8
      {i2, i2, i2, i2, i4, i8, f2, bf, f4, f8},  // int16
      {i4, i4, i4, i4, i4, i8, f2, bf, f4, f8},  // int32
      {i8, i8, i8, i8, i8, i8, f2, bf, f4, f8},  // int64
      {f2, f2, f2, f2, f2, f2, f2, f4, f4, f8},  // float16
      {bf, bf, bf, bf, bf, bf, f4, bf, f4, f8},  // bfloat16
      {f4, f4, f4, f4, f4, f4, f4, f4, f4, f8},  // float32
      {f8, f8, f8, f8, f8, f8, f8, f8, f8, f8},  // float64
  };
  for (int a = 0; a < kNumDTypes; ++a) {
    for (int b = 0; b < kNumDTypes; ++b) {
      EXPECT_EQ(promote(static_cast<DType>(a), static_cast<DType>(b)), expected[a][b]) << a << " " << b;
    }
  }
}

TEST(DType, PromotesNumbersAsPyTorchDoes) {
  EXPECT_EQ(promote_with_number(kBool, false), kInt64);
  EXPECT_EQ(promote_with_number(kUInt8, false), kUInt8);
  EXPECT_EQ(promote_with_number(kInt32, false), kInt32);
  EXPECT_EQ(promote_with_number(kBFloat16, false), kBFloat16);
  EXPECT_EQ(promote_with_number(kInt64, true), kFloat32);
  EXPECT_EQ(promote_with_number(kBool, true), kFloat32);
  EXPECT_EQ(promote_with_number(kFloat16, true), kFloat16);
  EXPECT_EQ(promote_with_number(kFloat64, true), kFloat64);
}

TEST(DType, AccumulatesHalvesInFloatAndIntegersInInt64) {
  EXPECT_EQ(accumulation_dtype(kBFloat16), kFloat32);
  EXPECT_EQ(accumulation_dtype(kFloat16), kFloat32);
  EXPECT_EQ(accumulation_dtype(kFloat64), kFloat64);
  EXPECT_EQ(accumulation_dtype(kBool), kInt64);
  EXPECT_EQ(accumulation_dtype(kInt16), kInt64);
}

TEST(DType, RoundTripsNamesAndSizes) {
  for (uint8_t code = 0; code < kNumDTypes; ++code) {
    const DType dtype = static_cast<DType>(code);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
    EXPECT_EQ(visit_dtype(dtype, []<class T>() { return static_cast<int64_t>(sizeof(T)); }), size_of(dtype));
    EXPECT_EQ(visit_dtype(dtype, []<class T>() { return dtype_of<T>(); }), dtype);
  }
  EXPECT_FALSE(is_valid_dtype(kNumDTypes));
  try {
    dtype_from_name("float31");
    FAIL();
  } catch (const DTypeError& error) {
    EXPECT_NE(std::string(error.what()).find("bfloat16"), std::string::npos);
  }
}

TEST(DType, RoundTripsEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (std::isnan(float16_bits_to_float(half))) {
      EXPECT_TRUE(std::isnan(float16_bits_to_float(float_to_float16_bits(float16_bits_to_float(half)))));
    } else {
      EXPECT_EQ(float_to_float16_bits(float16_bits_to_float(half)), half);
    }
    if (std::isnan(bfloat16_bits_to_float(half))) {
      EXPECT_TRUE(std::isnan(bfloat16_bits_to_float(float_to_bfloat16_bits(bfloat16_bits_to_float(half)))));
    } else {
      EXPECT_EQ(float_to_bfloat16_bits(bfloat16_bits_to_float(half)), half);
    }
  }
}

TEST(DType, RoundsHalvesToNearestEven) {
  // Between any two neighbours: the middle goes to the even one, a bit more or less to the nearer one.
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const float middle = (float16_bits_to_float(low) + float16_bits_to_float(high)) / 2;
    EXPECT_EQ(float_to_float16_bits(middle), low % 2 == 0 ? low : high);
    EXPECT_EQ(float_to_float16_bits(std::nextafter(middle, 0.0f)), low);
    EXPECT_EQ(float_to_float16_bits(-std::nextafter(middle, 1e9f)), high | 0x8000);
  }
  EXPECT_EQ(float_to_float16_bits(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_float16_bits(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_bfloat16_bits(257.0f), float_to_bfloat16_bits(256.0f));
  EXPECT_EQ(bfloat16_bits_to_float(float_to_bfloat16_bits(259.0f)), 260.0f);
  EXPECT_EQ(bfloat16_bits_to_float(float_to_bfloat16_bits(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
}

TEST(Shape, CountsElementsAndRefusesOverflow) {
  EXPECT_EQ(Shape{}.num_elements(), 1);
  EXPECT_EQ((Shape{3, 0, 5}).num_elements(), 0);
  EXPECT_EQ((Shape{int64_t{1} << 40, int64_t{1} << 22}).num_elements(), int64_t{1} << 62);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}).num_elements(), ShapeError);
  EXPECT_THROW((Shape{2, -1}).num_elements(), ShapeError);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  EXPECT_EQ((Shape{2, 3}).str(), "[2, 3]");
}

TEST(Shape, HasRowMajorStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_EQ(contiguous_strides({}), Shape{});
}

TEST(Shape, NormalisesDims) {
  EXPECT_EQ(normalize_dim(-1, 3, "softmax"), 2);
  try {
    normalize_dim(7, 3, "softmax");
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "[softmax] dim 7 is outside [-3, 3)");
  }
  EXPECT_THROW(normalize_dim(0, 0, "sum"), ShapeError);
}

TEST(Shape, BroadcastsAsPyTorchDoes) {
  EXPECT_EQ(broadcast_shapes({3, 4, 5}, {4, 1}, "add"), (Shape{3, 4, 5}));
  EXPECT_EQ(broadcast_shapes({1}, {0}, "add"), Shape{0});
  EXPECT_EQ(broadcast_shapes({}, {2, 1}, "add"), (Shape{2, 1}));
  EXPECT_THROW(broadcast_shapes({3}, {4}, "add"), ShapeError);
  EXPECT_THROW(broadcast_shapes({2}, {0}, "add"), ShapeError);
}

TEST(Box, IntersectsAndContains) {
  const Box a{{0, 2}, {4, 3}};
  const Box b{{3, 0}, {5, 3}};
  EXPECT_EQ(intersect(a, b), (Box{{3, 2}, {1, 1}}));
  EXPECT_TRUE(intersect(a, Box{{4, 0}, {1, 9}}).empty());
  EXPECT_TRUE(a.contains({{1, 3}, {2, 2}}));
  EXPECT_FALSE(a.contains({{1, 3}, {2, 3}}));
  EXPECT_TRUE(a.contains({{90, 90}, {0, 3}}));
  EXPECT_EQ(a.str(), "[0:4, 2:5]");
  EXPECT_EQ(whole({2, 3}), (Box{{0, 0}, {2, 3}}));
}

TEST(Placement, PrintsAsItIsWritten) {
  EXPECT_EQ((Placements{Shard(0), Replicate(), Partial(kMax)}).str(), "{Shard(0), Replicate(), Partial(max)}");
  EXPECT_NE(Partial(kSum), Partial(kAvg));
}

}  // namespace
}  // namespace dtorch
