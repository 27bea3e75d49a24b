// Element types: names, PyTorch's promotion rules and conversions of half types by hand.
#include "mesh/dtype.h"

#include <bit>
#include <cstring>
#include <ostream>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

struct DTypeInfo {
  const char* name;
  int64_t bytes;
};

constexpr DTypeInfo kInfo[kNumDTypes] = {
    {"bool", 1},  {"uint8", 1},   {"int8", 1},     {"int16", 2},   {"int32", 4},
    {"int64", 8}, {"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
};

const DTypeInfo& info_of(DType dtype) {
  DTORCH_CHECK(is_valid_dtype(static_cast<uint8_t>(dtype)), std::to_string(static_cast<int>(dtype)));
  return kInfo[static_cast<size_t>(dtype)];
}

}  // namespace

int64_t size_of(DType dtype) { return info_of(dtype).bytes; }

const char* name_of(DType dtype) { return info_of(dtype).name; }

DType dtype_from_name(std::string_view name) {
  std::string names;
  for (int code = 0; code < kNumDTypes; ++code) {
    if (name == kInfo[code].name) return static_cast<DType>(code);
    names += (code == 0 ? "" : ", ") + std::string(kInfo[code].name);
  }
  throw DTypeError("unknown dtype \"" + std::string(name) + "\"; known are " + names);
}

bool is_floating(DType dtype) { return static_cast<int>(dtype) >= static_cast<int>(kFloat16); }

bool is_integral(DType dtype) { return dtype != kBool && !is_floating(dtype); }

bool is_valid_dtype(uint8_t code) { return code < kNumDTypes; }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (static_cast<int>(a) > static_cast<int>(b)) std::swap(a, b);
  // Now a comes before b in the order of the enum, which is the order of promotion but for two pairs.
  if (a == kFloat16 && b == kBFloat16) return kFloat32;
  if (a == kUInt8 && b == kInt8) return kInt16;
  return b;
}

DType promote_with_number(DType tensor, bool number_is_floating) {
  if (number_is_floating) return is_floating(tensor) ? tensor : kFloat32;
  return tensor == kBool ? kInt64 : tensor;
}

DType accumulation_dtype(DType dtype) {
  if (dtype == kFloat16 || dtype == kBFloat16) return kFloat32;
  return is_floating(dtype) ? dtype : kInt64;
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

uint16_t float_to_bfloat16_bits(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);  // quiet NaN
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>(bits >> 16);
}

float bfloat16_bits_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_float16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);             // below half of the smallest subnormal
  const uint32_t exponent = magnitude >> 23;
  uint32_t mantissa = magnitude & 0x7fffffu;
  uint32_t result;
  uint32_t shift;
  if (exponent < 113) {  // subnormal in float16
    mantissa |= 0x800000u;
    shift = 126 - exponent;
    result = mantissa >> shift;
  } else {
    shift = 13;
    result = ((exponent - 112) << 10) | (mantissa >> shift);
  }
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  if (rest > half || (rest == half && (result & 1u))) ++result;  // a carry into the exponent is right
  return static_cast<uint16_t>(sign | result);
}

float float16_bits_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu;
  uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

}  // namespace dtorch
