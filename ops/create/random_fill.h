// How the random operators of this room make values of a part, element by global element. Not for users.
#pragma once
#include <cmath>
#include <initializer_list>
#include <vector>

#include "ops/create/operators.h"
#include "ops/create/philox.h"
#include "runtime/client/draw_scope.h"
#include "runtime/client/graph_core.h"

namespace dtorch::create {

// scalars [seed, call, ...] of every random operator.
inline PhiloxCall call_of(const KernelContext& context) { return {context.scalar(0).bits, context.scalar(1).bits}; }

// Makes the part with fill.operator()<T>(call, first element, values, count) a contiguous stretch.
template <class Fill>
void random_kernel(KernelContext& context, Fill&& fill) {
  bool done = false;
  NativeTensor part = make_part(context, &done);
  if (!done) {
    const PhiloxCall call = call_of(context);
    visit_dtype(part.dtype(), [&]<class T>() {
      T* values = reinterpret_cast<T*>(part.data());
      for_each_contiguous_run(context.output_meta(0).global_shape, context.output_box(0),
                              [&](int64_t global, int64_t local, int64_t length) {
                                fill.template operator()<T>(call, global, values + local, length);
                              });
    });
  }
  context.output(0) = std::move(part);
}

template <class T>
void fill_uniform(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t e = first; e < first + count;) {
      const PhiloxBlock high = call.block(static_cast<uint64_t>(e) / 4, 0);
      const PhiloxBlock low = call.block(static_cast<uint64_t>(e) / 4, 1);
      for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) {
        values[e - first] = uniform_of(high[lane], low[lane]);
      }
    }
  } else {
    // As many bits as the type represents exactly, so that no value is rounded up to 1.
    constexpr int kBits = std::is_same_v<T, Float16> ? 11 : std::is_same_v<T, BFloat16> ? 8 : 24;
    call.for_each_word(first, count,
                       [&](int64_t e, uint32_t word) { values[e - first] = static_cast<T>(uniform_of<kBits>(word)); });
  }
}

template <class T>
void fill_normal(const PhiloxCall& call, int64_t first, T* values, int64_t count) {
  for (int64_t e = first; e < first + count;) {
    const PhiloxBlock words = call.block(static_cast<uint64_t>(e) / 4);
    const NormalPair low = normal_pair_of(words[0], words[1]);
    const NormalPair high = normal_pair_of(words[2], words[3]);
    const double normals[4] = {low.first, low.second, high.first, high.second};
    for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) {
      values[e - first] = static_cast<T>(normals[lane]);
    }
  }
}

// Calls f(element, number in (0, 1), never one of its ends) for elements first .. first + count - 1.
template <class F>
void for_each_open_uniform(const PhiloxCall& call, int64_t first, int64_t count, F&& f) {
  for (int64_t e = first; e < first + count;) {
    const PhiloxBlock high = call.block(static_cast<uint64_t>(e) / 4, 0);
    const PhiloxBlock low = call.block(static_cast<uint64_t>(e) / 4, 1);
    for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) {
      const uint64_t bits = (uint64_t{high[lane]} << 32 | low[lane]) >> 12;
      f(e, (static_cast<double>(bits) + 0.5) / 4503599627370496.0);
    }
  }
}

// Floating dtypes only; shape and dtype are CreateAttrs.
inline std::vector<OutputMeta> infer_floating_created(const InferContext& context) {
  const DType dtype = context.attributes<CreateAttrs>().dtype;
  if (!is_floating(dtype)) {
    throw DTypeError("[" + std::string(context.op) + "] dtype " + name_of(dtype) +
                     " isn't floating; integers come from randint");
  }
  return infer_created(context);
}

// scalars [seed, call, more...] of the current Graph's next random call.
inline std::vector<Scalar> next_random_scalars(std::initializer_list<Scalar> more = {}) {
  const RandomState state = current_graph().next_random_call();
  std::vector<Scalar> scalars = {{state.seed}, {state.next_call}};
  scalars.insert(scalars.end(), more);
  return scalars;
}

inline Tensor record_random(const OperatorDef& op, const Shape& shape, DType dtype, const Layout& layout,
                            bool requires_grad, std::initializer_list<Scalar> more, const Where& where) {
  const DrawScope draw;
  return record_created(op, {shape, dtype}, layout, next_random_scalars(more), requires_grad, where);
}

}  // namespace dtorch::create
