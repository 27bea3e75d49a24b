// For kernels: a KernelContext's inputs and outputs as at::Tensor. The only public header that includes LibTorch; empty
// in builds without kernels. Threads: a kernel's own. Kernels run under c10::InferenceMode with a fixed number of
// LibTorch threads.
//
//   static void softmax_kernel(KernelContext& context) {
//     set_output(context, 0, at::softmax(input(context, 0), context.attributes<SoftmaxAttrs>().dim));
//   }
#pragma once
#include "ops/def/operator_def.h"

#if DTORCH_WITH_KERNELS
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <utility>

namespace dtorch {

inline at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return at::kBool;
    case DType::kUInt8:
      return at::kByte;
    case DType::kInt8:
      return at::kChar;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt64:
      return at::kLong;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      break;
  }
  return at::kDouble;
}
// Throws DTypeError for types that DTorch doesn't have.
inline DType dtype_from(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return kBool;
    case at::kByte:
      return kUInt8;
    case at::kChar:
      return kInt8;
    case at::kShort:
      return kInt16;
    case at::kInt:
      return kInt32;
    case at::kLong:
      return kInt64;
    case at::kHalf:
      return kFloat16;
    case at::kBFloat16:
      return kBFloat16;
    case at::kFloat:
      return kFloat32;
    case at::kDouble:
      return kFloat64;
    default:
      break;
  }
  throw DTypeError(std::string("LibTorch's type ") + c10::toString(type) + " has no counterpart in DTorch");
}

// Options of a new CPU tensor.
inline at::TensorOptions tensor_options(DType dtype) { return at::TensorOptions().dtype(scalar_type(dtype)); }
// Sizes of a shape or box, valid as long as it is.
inline at::IntArrayRef sizes_of(const Shape& shape) { return {shape.data(), static_cast<size_t>(shape.size())}; }

// The at::Tensor inside, borrowed: no count is touched; valid as long as `tensor` is. A NativeTensor is one pointer to
// a c10::TensorImpl, as an at::Tensor is, so the handle itself is looked at as one (compilers let void* alias every
// pointer).
inline const at::Tensor& as_aten(const NativeTensor& tensor) {
  static_assert(sizeof(at::Tensor) == sizeof(void*) && alignof(at::Tensor) == alignof(NativeTensor));
  static_assert(sizeof(NativeTensor) == sizeof(void*));
  DTORCH_CHECK(tensor.impl() != nullptr, "a kernel looked at a tensor that this device has no part of");
  return reinterpret_cast<const at::Tensor&>(tensor);
}
// Takes over the reference; an undefined at::Tensor becomes an empty NativeTensor.
inline NativeTensor from_aten(at::Tensor tensor) {
  return tensor.defined() ? NativeTensor::adopt(tensor.unsafeReleaseTensorImpl()) : NativeTensor();
}

inline const at::Tensor& input(const KernelContext& context, size_t i) { return as_aten(context.input(i)); }
inline void set_output(KernelContext& context, size_t i, at::Tensor tensor) {
  context.output(i) = from_aten(std::move(tensor));
}
// Sizes of this device's part of output i.
inline at::IntArrayRef output_sizes(const KernelContext& context, size_t i) {
  return sizes_of(context.output_box(i).size);
}

}  // namespace dtorch
#endif
