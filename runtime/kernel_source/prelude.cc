#include "runtime/kernel_source/prelude.h"

namespace dtorch::kernel_source {
namespace {

// Rounding of narrow floats is to nearest even, as everywhere in DTorch. Formulas are those of the CPU's kernels, one
// rounding an operation: kernels are compiled without contraction (nvrtc.h).
constexpr const char* kTypes = R"(
typedef unsigned char u8; typedef signed char i8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned int u32; typedef long long i64; typedef unsigned long long u64;
typedef float f32; typedef double f64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
#ifndef DT_HOST
#define DT_INLINE __device__ __forceinline__
#define DT_KERNEL extern "C" __global__ void __launch_bounds__(256)
#define DT_THREAD ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define DT_THREADS ((i64)gridDim.x * blockDim.x)
#define DT_ROW blockIdx.y
static DT_INLINE f32 bits_to_float(u32 bits) { return __uint_as_float(bits); }
static DT_INLINE u32 float_to_bits(f32 value) { return __float_as_uint(value); }
static DT_INLINE f32 f16_to_float(u16 bits) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits)); return r; }
static DT_INLINE u16 float_to_f16(f32 value) { u16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(value)); return r; }
static DT_INLINE u64 mul_high(u64 a, u64 b) { return __umul64hi(a, b); }
#endif
static DT_INLINE f32 bf16_to_float(u16 bits) { return bits_to_float((u32)bits << 16); }
static DT_INLINE u16 float_to_bf16(f32 value) {
  if (value != value) return 0x7FC0;
  const u32 bits = float_to_bits(value);
  return (u16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

template <class T> static DT_INLINE T widen(T value) { return value; }
static DT_INLINE f32 widen(f16 value) { return f16_to_float(value.bits); }
static DT_INLINE f32 widen(bf16 value) { return bf16_to_float(value.bits); }

template <class T> struct To { template <class S> static DT_INLINE T of(S value) { return (T)widen(value); } };
template <> struct To<bool> { template <class S> static DT_INLINE bool of(S value) { return widen(value) != 0; } };
template <> struct To<u8> {
  template <class S> static DT_INLINE u8 of(S value) { return (u8)(i64)widen(value); }
};
template <> struct To<f16> {
  template <class S> static DT_INLINE f16 of(S value) { f16 r; r.bits = float_to_f16((f32)widen(value)); return r; }
  static DT_INLINE f16 of(f16 value) { return value; }
};
template <> struct To<bf16> {
  template <class S> static DT_INLINE bf16 of(S value) { bf16 r; r.bits = float_to_bf16((f32)widen(value)); return r; }
  static DT_INLINE bf16 of(bf16 value) { return value; }
};

// What a thread takes at a time, loaded and stored as one.
template <class T, int kWidth> struct alignas(sizeof(T) * kWidth) Pack { T at[kWidth]; };
)";

constexpr const char* kFormulas = R"(
static DT_INLINE f32 dt_exp(f32 x) { return expf(x); }      static DT_INLINE f64 dt_exp(f64 x) { return exp(x); }
static DT_INLINE f32 dt_log(f32 x) { return logf(x); }      static DT_INLINE f64 dt_log(f64 x) { return log(x); }
static DT_INLINE f32 dt_sqrt(f32 x) { return sqrtf(x); }    static DT_INLINE f64 dt_sqrt(f64 x) { return sqrt(x); }
static DT_INLINE f32 dt_sin(f32 x) { return sinf(x); }      static DT_INLINE f64 dt_sin(f64 x) { return sin(x); }
static DT_INLINE f32 dt_cos(f32 x) { return cosf(x); }      static DT_INLINE f64 dt_cos(f64 x) { return cos(x); }
static DT_INLINE f32 dt_erf(f32 x) { return erff(x); }      static DT_INLINE f64 dt_erf(f64 x) { return erf(x); }
static DT_INLINE f32 dt_tanh(f32 x) { return tanhf(x); }    static DT_INLINE f64 dt_tanh(f64 x) { return tanh(x); }
static DT_INLINE f32 dt_floor(f32 x) { return floorf(x); }  static DT_INLINE f64 dt_floor(f64 x) { return floor(x); }
static DT_INLINE f32 dt_ceil(f32 x) { return ceilf(x); }    static DT_INLINE f64 dt_ceil(f64 x) { return ceil(x); }
static DT_INLINE f32 dt_rint(f32 x) { return rintf(x); }    static DT_INLINE f64 dt_rint(f64 x) { return rint(x); }
static DT_INLINE f32 dt_abs(f32 x) { return fabsf(x); }     static DT_INLINE f64 dt_abs(f64 x) { return fabs(x); }
static DT_INLINE f32 dt_pow(f32 x, f32 y) { return powf(x, y); }
static DT_INLINE f64 dt_pow(f64 x, f64 y) { return pow(x, y); }

#define DT_UNARY(name, formula) template <class M> static DT_INLINE M op_##name(M a) { return (M)(formula); }
#define DT_BINARY(name, formula) template <class M> static DT_INLINE M op_##name(M a, M b) { return (M)(formula); }
#define DT_TEST(name, formula) template <class M> static DT_INLINE bool op_##name(M a, M b) { return formula; }
DT_UNARY(neg, -a)
DT_UNARY(abs, dt_abs(a))
DT_UNARY(sign, (a > M(0)) - (a < M(0)))
DT_UNARY(floor, dt_floor(a))
DT_UNARY(ceil, dt_ceil(a))
DT_UNARY(round, dt_rint(a))
DT_UNARY(square, a * a)
DT_UNARY(reciprocal, M(1) / a)
DT_UNARY(exp, dt_exp(a))
DT_UNARY(log, dt_log(a))
DT_UNARY(sqrt, dt_sqrt(a))
DT_UNARY(rsqrt, M(1) / dt_sqrt(a))
DT_UNARY(sin, dt_sin(a))
DT_UNARY(cos, dt_cos(a))
DT_UNARY(erf, dt_erf(a))
DT_UNARY(relu, a < M(0) ? M(0) : a)
DT_UNARY(sigmoid, M(1) / (M(1) + dt_exp(-a)))
DT_UNARY(tanh, dt_tanh(a))
DT_UNARY(silu, a / (M(1) + dt_exp(-a)))
DT_BINARY(add, a + b)
DT_BINARY(sub, a - b)
DT_BINARY(mul, a * b)
DT_BINARY(div, a / b)
DT_BINARY(pow, dt_pow(a, b))
DT_BINARY(minimum, a != a ? a : b != b ? b : b < a ? b : a)
DT_BINARY(maximum, a != a ? a : b != b ? b : a < b ? b : a)
DT_BINARY(sigmoid_gradient, a * (M(1) - b) * b)
DT_BINARY(tanh_gradient, a * (M(1) - b * b))
template <class M> static DT_INLINE M op_silu_gradient(M g, M x) {
  const M s = M(1) / (M(1) + dt_exp(-x));
  return g * s * (M(1) + x * (M(1) - s));
}
DT_TEST(eq, a == b)
DT_TEST(ne, a != b)
DT_TEST(lt, a < b)
DT_TEST(le, a <= b)
DT_TEST(gt, a > b)
DT_TEST(ge, a >= b)
)";

}  // namespace

const std::string& prelude() {
  static const std::string text = std::string(kTypes) + kFormulas;
  return text;
}

const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kUInt8:
      return "u8";
    case DType::kInt8:
      return "i8";
    case DType::kInt16:
      return "i16";
    case DType::kInt32:
      return "i32";
    case DType::kInt64:
      return "i64";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat32:
      return "f32";
    case DType::kFloat64:
      break;
  }
  return "f64";
}

const char* math_type_name(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16 ? "f32" : type_name(dtype); }

}  // namespace dtorch::kernel_source
