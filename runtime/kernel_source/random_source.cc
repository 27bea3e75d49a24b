#include "runtime/kernel_source/random_source.h"

#include <fmt/format.h>

#include "runtime/kernel_source/prelude.h"

namespace dtorch::kernel_source {
namespace {

constexpr const char* kPrelude = R"(
struct Part { i64 n, start, ndim, size[8], stride[8]; };
static DT_INLINE i64 global_number(const Part& part, i64 local) {
  i64 number = part.start;
  for (int dim = (int)part.ndim - 1; dim > 0; --dim) {
    const i64 rest = local / part.size[dim];
    number += (local - rest * part.size[dim]) * part.stride[dim];
    local = rest;
  }
  return part.ndim > 0 ? number + local * part.stride[0] : number;
}

// Words of four elements with numbers 4 b to 4 b + 3.
struct Words { u32 at[4]; };
static DT_INLINE Words philox(u64 seed, u64 call, u64 block, u32 stream) {
  u32 a = (u32)block, b = (u32)(block >> 32) | stream << 30, c = (u32)call, d = (u32)(call >> 32);
  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const u64 x = (u64)0xD2511F53u * a, y = (u64)0xCD9E8D57u * c;
    const u32 a1 = (u32)(y >> 32) ^ b ^ k0, c1 = (u32)(x >> 32) ^ d ^ k1;
    a = a1; b = (u32)y; c = c1; d = (u32)x;
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  Words words;
  words.at[0] = a; words.at[1] = b; words.at[2] = c; words.at[3] = d;
  return words;
}

// As many bits as the type has, so that no value is rounded up to 1.
template <class T> struct Uniform {
  static const bool kTwoStreams = false;
  static DT_INLINE T of(u32 word, u32) { return To<T>::of((f32)(word >> 8) / 16777216.0f); }
};
template <> struct Uniform<f16> {
  static const bool kTwoStreams = false;
  static DT_INLINE f16 of(u32 word, u32) { return To<f16>::of((f32)(word >> 21) / 2048.0f); }
};
template <> struct Uniform<bf16> {
  static const bool kTwoStreams = false;
  static DT_INLINE bf16 of(u32 word, u32) { return To<bf16>::of((f32)(word >> 24) / 256.0f); }
};
template <> struct Uniform<f64> {
  static const bool kTwoStreams = true;
  static DT_INLINE f64 of(u32 high, u32 low) {
    return ((f64)(high >> 5) * 67108864.0 + (f64)(low >> 6)) / 9007199254740992.0;
  }
};

// Box-Muller; an odd lane takes the sine of its pair.
static DT_INLINE f64 normal_of(const Words& words, int lane) {
  const f64 radius = sqrt(-2.0 * log(((f64)words.at[lane & 2] + 1.0) / 4294967296.0));
  const f64 angle = 2.0 * 3.141592653589793238 * ((f64)words.at[lane | 1] / 4294967296.0);
  return radius * ((lane & 1) == 0 ? cos(angle) : sin(angle));
}

// Calls f.element(local, lane, words of both streams) for the thread's elements, four in a row, whose words are mostly
// of one or two blocks.
template <class F> static DT_INLINE void for_each_element(const Part& part, u64 seed, u64 call, bool two, const F& f) {
  for (i64 first = DT_THREAD * 4; first < part.n; first += DT_THREADS * 4) {
    u64 at = ~(u64)0;
    Words one, other;
#pragma unroll 1
    for (i64 local = first; local < first + 4 && local < part.n; ++local) {
      const u64 number = (u64)global_number(part, local);
      if (number / 4 != at) {
        at = number / 4;
        one = philox(seed, call, at, 0);
        if (two) other = philox(seed, call, at, 1);
      }
      f.element(local, (int)(number % 4), one, two ? other : one);
    }
  }
}
template <class T> struct FillUniform {
  T* to;
  DT_INLINE void element(i64 local, int lane, const Words& one, const Words& other) const {
    to[local] = Uniform<T>::of(one.at[lane], other.at[lane]);
  }
};
template <class T> struct FillNormal {
  T* to;
  DT_INLINE void element(i64 local, int lane, const Words& one, const Words&) const {
    to[local] = To<T>::of(normal_of(one, lane));
  }
};
template <class T> struct FillInteger {
  T* to;
  i64 low;
  u64 range;
  DT_INLINE void element(i64 local, int lane, const Words& one, const Words& other) const {
    const u64 word = (u64)one.at[lane] << 32 | other.at[lane];
    to[local] = To<T>::of((i64)((u64)low + mul_high(word, range)));
  }
};
template <class T, class Wide> struct Dropout {
  T* to;
  const T* from;
  u64 limit;
  Wide scale;
  DT_INLINE void element(i64 local, int lane, const Words& one, const Words&) const {
    to[local] = one.at[lane] < limit ? To<T>::of((Wide)widen(from[local]) * scale) : To<T>::of((Wide)0);
  }
};
)";

}  // namespace

const std::string& random_prelude() {
  static const std::string text = kPrelude;
  return text;
}

PartParameter part_parameter(const Shape& global_shape, const Box& box) {
  PartParameter part{.num_elements = box.num_elements()};
  if (part.num_elements == 0) return part;
  const Shape strides = contiguous_strides(global_shape);
  bool merges = false;  // the dim behind is whole, or of the part nothing is behind
  for (int64_t dim = 0; dim < box.ndim(); ++dim) {
    part.start += box.offset[dim] * strides[dim];
    if (box.size[dim] == 1) continue;
    if (merges && box.size[dim] == global_shape[dim]) {
      part.size[part.ndim - 1] *= box.size[dim];
      part.stride[part.ndim - 1] = strides[dim];
    } else {
      part.size[part.ndim] = box.size[dim];
      part.stride[part.ndim++] = strides[dim];
    }
    merges = true;
  }
  return part;
}

RandomSource random_source(RandomKind kind, DType dtype) {
  const std::string type = type_name(dtype);
  switch (kind) {
    case RandomKind::kUniform:
      return {"uniform_" + type,
              fmt::format("DT_KERNEL uniform_{0}({0}* to, Part part, u64 seed, u64 call) {{\n"
                          "  const FillUniform<{0}> fill = {{to}};\n"
                          "  for_each_element(part, seed, call, Uniform<{0}>::kTwoStreams, fill);\n}}\n",
                          type)};
    case RandomKind::kNormal:
      return {"normal_" + type, fmt::format("DT_KERNEL normal_{0}({0}* to, Part part, u64 seed, u64 call) {{\n"
                                            "  const FillNormal<{0}> fill = {{to}};\n"
                                            "  for_each_element(part, seed, call, false, fill);\n}}\n",
                                            type)};
    case RandomKind::kInteger:
      return {"integer_" + type,
              fmt::format("DT_KERNEL integer_{0}({0}* to, Part part, u64 seed, u64 call, i64 low, u64 range) {{\n"
                          "  const FillInteger<{0}> fill = {{to, low, range}};\n"
                          "  for_each_element(part, seed, call, true, fill);\n}}\n",
                          type)};
    case RandomKind::kDropout:
      break;
  }
  return {"dropout_" + type,
          fmt::format("DT_KERNEL dropout_{0}({0}* to, const {0}* from, Part part, u64 seed, u64 call, u64 limit, f64 "
                      "scale) {{\n"
                      "  const Dropout<{0}, {1}> drop = {{to, from, limit, ({1})scale}};\n"
                      "  for_each_element(part, seed, call, false, drop);\n}}\n",
                      type, math_type_name(dtype))};
}

}  // namespace dtorch::kernel_source
