// HostTensor: elements, conversion, comparison, wrong use.
#include "runtime/client/host_tensor.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

TEST(HostTensor, GivesElementsByIndexAndConvertsThem) {
  HostTensor tensor = HostTensor::of<float>({2, 3}, {1, 2, 3, 4, 5.5f, 6});
  EXPECT_EQ(tensor.at<float>(1, 1), 5.5f);
  EXPECT_EQ(tensor.at<int64_t>(1, 1), 5);
  EXPECT_EQ(tensor.num_bytes(), 24);
  EXPECT_EQ(HostTensor::full<int64_t>({}, 7).at<double>(), 7.0);
  EXPECT_EQ(HostTensor::of<bool>({2}, {true, false}).at<int>(0), 1);
}

TEST(HostTensor, RefusesAWrongNumberOfValuesAWrongTypeAndAnIndexOutside) {
  EXPECT_THROW(HostTensor::of<float>({2, 3}, {1, 2, 3}), ShapeError);
  HostTensor tensor = HostTensor::full<float>({2, 3}, 1.0f);
  EXPECT_THROW(tensor.data<double>(), DTypeError);
  EXPECT_THROW(tensor.at<float>(2, 0), ShapeError);
  EXPECT_THROW(tensor.at<float>(-1, 0), ShapeError);
  EXPECT_THROW(tensor.at<float>(0), ShapeError);
}

TEST(HostTensor, IsFilledWithZerosWhenMadeFromAShape) {
  EXPECT_EQ(HostTensor({2, 2}, kInt32).to_vector<int>(), std::vector<int>(4, 0));
  EXPECT_EQ(HostTensor({0, 2}, kInt32).num_elements(), 0);
}

TEST(HostTensor, ConvertsBetweenElementTypes) {
  HostTensor floats = HostTensor::of<float>({3}, {0.0f, 1.5f, -2.0f});
  EXPECT_EQ(floats.to(kInt64).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, -2}));
  EXPECT_EQ(floats.to(kBool).to_vector<bool>(), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(floats.to(kBFloat16).to(kFloat32).to_vector<float>(), floats.to_vector<float>());
  EXPECT_EQ(floats.to(kFloat16).dtype(), kFloat16);
  EXPECT_EQ(HostTensor::of<float>({1}, {0.5f}).to(kBool).at<bool>(0), true);
}

TEST(HostTensor, ComparesShapeTypeAndEveryBit) {
  HostTensor a = HostTensor::of<float>({2}, {0.0f, 1.0f});
  EXPECT_TRUE(a.equals(HostTensor::of<float>({2}, {0.0f, 1.0f})));
  EXPECT_FALSE(a.equals(HostTensor::of<float>({2}, {-0.0f, 1.0f})));
  EXPECT_FALSE(a.equals(HostTensor::of<float>({2, 1}, {0.0f, 1.0f})));
  EXPECT_FALSE(a.equals(HostTensor({2}, kInt32)));
  EXPECT_FALSE(a.equals(HostTensor()));
}

TEST(HostTensor, PrintsItsFirstElements) {
  EXPECT_EQ(HostTensor::of<int64_t>({2}, {4, 5}).str(), "int64 [2] {4, 5}");
  EXPECT_EQ(HostTensor::full<uint8_t>({100}, 3).str().substr(0, 20), "uint8 [100] {3, 3, 3");
}

}  // namespace
}  // namespace dtorch
