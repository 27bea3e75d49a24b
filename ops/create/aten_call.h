// Calls of LibTorch's functions by where their tensors are. Empty in builds without kernels.
#pragma once
#include "ops/def/operator_def.h"

#if DTORCH_WITH_KERNELS
#include <ATen/core/Tensor.h>

#include <type_traits>

namespace dtorch {

// Arguments that aren't tensors have no say.
template <class T>
bool is_on_cpu(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) return argument.is_cpu();
  return true;
}

// A function for the CPU and its counterpart for all other devices. Macros, since LibTorch's functions are overloaded
// and have default arguments, which is lost when they are handed over as arguments.
#define DTORCH_BY_DEVICE(cpu_function, any_function)                                                               \
  [](auto&&... arguments) -> decltype(auto) {                                                                      \
    return (::dtorch::is_on_cpu(arguments) && ...) ? cpu_function(static_cast<decltype(arguments)>(arguments)...)  \
                                                   : any_function(static_cast<decltype(arguments)>(arguments)...); \
  }
// Where all tensors are on the CPU its function is called, without LibTorch's dispatcher; else the dispatcher, which
// finds that of their device. DTORCH_ATEN(glu)(x, dim)
#define DTORCH_ATEN(function) DTORCH_BY_DEVICE(at::cpu::function, at::function)

}  // namespace dtorch
#endif
