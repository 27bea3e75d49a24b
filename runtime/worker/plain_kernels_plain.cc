// plain_kernels.h: values are computed in double or int64_t and rounded once.
#include "runtime/worker/plain_kernels.h"

#include <cstring>

#include "ops/math/operators.h"

namespace dtorch {
namespace {

// Values of a tensor in row-major order, in the type that the kernel computes with (double or int64_t).
template <class C>
std::vector<C> values_of(const NativeTensor& tensor) {
  NativeTensor packed = tensor.contiguous();
  std::vector<C> values(static_cast<size_t>(packed.num_elements()));
  visit_dtype(packed.dtype(), [&]<class T>() {
    const T* items = reinterpret_cast<const T*>(packed.data());
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<C>(items[i]);
  });
  return values;
}

template <class C>
NativeTensor tensor_of(const Shape& local_shape, DType dtype, const std::vector<C>& values) {
  NativeTensor tensor = NativeTensor::empty(local_shape, dtype);
  visit_dtype(dtype, [&]<class T>() {
    T* items = reinterpret_cast<T*>(tensor.data());
    for (size_t i = 0; i < values.size(); ++i) items[i] = static_cast<T>(values[i]);
  });
  return tensor;
}

// An input stretched over the output's local shape: a dim of size 1 has stride 0.
struct Broadcast {
  Shape strides;
  Broadcast(const Shape& input, const Shape& output) : strides(output.size(), 0) {
    Shape own = contiguous_strides(input);
    int64_t shift = output.size() - input.size();
    for (int64_t dim = 0; dim < input.size(); ++dim) strides[dim + shift] = input[dim] == 1 ? 0 : own[dim];
  }
  size_t offset(const Shape& index) const {
    int64_t offset = 0;
    for (int64_t dim = 0; dim < index.size(); ++dim) offset += index[dim] * strides[dim];
    return static_cast<size_t>(offset);
  }
};

template <class C, class F>
void compute_binary(KernelContext& context, F f) {
  const auto& attributes = context.attributes<math::BinaryAttrs>();
  const Shape& shape = context.output_box(0).size;
  std::vector<C> a = values_of<C>(context.input(0));
  std::vector<C> b;
  Shape b_shape;
  if (attributes.number == math::kNoNumber) {
    b = values_of<C>(context.input(1));
    b_shape = context.input(1).local_shape();
  } else {
    const Scalar& number = context.scalar(0);
    b = {attributes.number == math::kFloating ? static_cast<C>(number.as_double()) : static_cast<C>(number.as_int())};
  }
  Broadcast from_a(context.input(0).local_shape(), shape), from_b(b_shape, shape);
  std::vector<C> result(static_cast<size_t>(shape.num_elements()));
  Shape index(shape.size(), 0);
  for (C& item : result) {
    C x = a[from_a.offset(index)], y = b[from_b.offset(index)];
    item = attributes.reversed ? f(y, x) : f(x, y);
    for (int64_t dim = shape.size() - 1; dim >= 0 && ++index[dim] == shape[dim]; --dim) index[dim] = 0;
  }
  context.output(0) = tensor_of(shape, context.output_meta(0).dtype, result);
}

template <class F>
void binary_kernel(KernelContext& context) {
  if (is_floating(context.output_meta(0).dtype)) {
    compute_binary<double>(context, F());
  } else {
    compute_binary<int64_t>(context, F());
  }
}

struct Add {
  auto operator()(auto a, auto b) const { return a + b; }
};
struct Sub {
  auto operator()(auto a, auto b) const { return a - b; }
};
struct Mul {
  auto operator()(auto a, auto b) const { return a * b; }
};

template <class C>
NativeTensor negated(KernelContext& context) {
  std::vector<C> values = values_of<C>(context.input(0));
  for (C& value : values) value = -value;
  return tensor_of(context.output_box(0).size, context.output_meta(0).dtype, values);
}

void neg_kernel(KernelContext& context) {
  context.output(0) = is_floating(context.output_meta(0).dtype) ? negated<double>(context) : negated<int64_t>(context);
}

void zero_kernel(KernelContext& context) {
  for (size_t i = 0; i < context.num_outputs(); ++i) {
    NativeTensor part = NativeTensor::empty(context.output_box(i).size, context.output_meta(i).dtype);
    if (part.num_bytes() > 0) std::memset(part.data(), 0, static_cast<size_t>(part.num_bytes()));
    context.output(i) = std::move(part);
  }
}

struct Entry {
  std::string_view name;
  KernelFn kernel;
};
constexpr Entry kTable[] = {
    {"add", binary_kernel<Add>}, {"sub", binary_kernel<Sub>}, {"mul", binary_kernel<Mul>}, {"neg", neg_kernel}};

}  // namespace

KernelFn plain_kernel(std::string_view name) {
  for (const Entry& entry : kTable) {
    if (entry.name == name) return entry.kernel;
  }
  return zero_kernel;
}

}  // namespace dtorch
