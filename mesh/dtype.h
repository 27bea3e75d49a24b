// Element types and PyTorch's promotion rules. Pure values.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace dtorch {

enum class DType : uint8_t { kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64 };

inline constexpr DType kBool = DType::kBool;
inline constexpr DType kUInt8 = DType::kUInt8;
inline constexpr DType kInt8 = DType::kInt8;
inline constexpr DType kInt16 = DType::kInt16;
inline constexpr DType kInt32 = DType::kInt32;
inline constexpr DType kInt64 = DType::kInt64;
inline constexpr DType kFloat16 = DType::kFloat16;
inline constexpr DType kBFloat16 = DType::kBFloat16;
inline constexpr DType kFloat32 = DType::kFloat32;
inline constexpr DType kFloat64 = DType::kFloat64;
inline constexpr int kNumDTypes = 10;

int64_t size_of(DType dtype);                  // bytes of one element
const char* name_of(DType dtype);              // "float32"
DType dtype_from_name(std::string_view name);  // throws DTypeError that lists the names
bool is_floating(DType dtype);
bool is_integral(DType dtype);  // bool excluded
bool is_valid_dtype(uint8_t code);
// Type of the result of a binary operator on two tensors, as in PyTorch.
DType promote(DType a, DType b);
// Type of the result of tensor (dtype) with a plain number: an integer number never widens an integer (but turns
// bool into int64), a floating number turns integers and bool into float32.
DType promote_with_number(DType tensor, bool number_is_floating);
// Type in which reductions of `dtype` accumulate: float32 for float16/bfloat16, int64 for integers and bool, else
// itself.
DType accumulation_dtype(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

// Rounds to nearest even; the only conversions written by hand, used where no LibTorch is linked.
uint16_t float_to_bfloat16_bits(float value);
float bfloat16_bits_to_float(uint16_t bits);
uint16_t float_to_float16_bits(float value);
float float16_bits_to_float(uint16_t bits);

// Calls f.template operator()<T>() with the C++ type that stores `dtype`; half types are given as struct Half /
// BFloat16.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  Float16(float value) : bits(float_to_float16_bits(value)) {}
  operator float() const { return float16_bits_to_float(bits); }
};
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float value) : bits(float_to_bfloat16_bits(value)) {}
  operator float() const { return bfloat16_bits_to_float(bits); }
};
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool:
      return f.template operator()<bool>();
    case DType::kUInt8:
      return f.template operator()<uint8_t>();
    case DType::kInt8:
      return f.template operator()<int8_t>();
    case DType::kInt16:
      return f.template operator()<int16_t>();
    case DType::kInt32:
      return f.template operator()<int32_t>();
    case DType::kInt64:
      return f.template operator()<int64_t>();
    case DType::kFloat16:
      return f.template operator()<Float16>();
    case DType::kBFloat16:
      return f.template operator()<BFloat16>();
    case DType::kFloat32:
      return f.template operator()<float>();
    case DType::kFloat64:
      break;
  }
  return f.template operator()<double>();
}

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<bool>() {
  return kBool;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return kUInt8;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return kInt8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return kInt16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return kInt32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return kInt64;
}
template <>
constexpr DType dtype_of<Float16>() {
  return kFloat16;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return kBFloat16;
}
template <>
constexpr DType dtype_of<float>() {
  return kFloat32;
}
template <>
constexpr DType dtype_of<double>() {
  return kFloat64;
}

}  // namespace dtorch
