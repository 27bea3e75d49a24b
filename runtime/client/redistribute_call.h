// Records the redistribute operator. Private to this room and runtime/autograd.
#pragma once
#include "runtime/client/tensor.h"

namespace dtorch {

// `tensor` itself when it has that layout already.
Tensor redistribute_call(const Tensor& tensor, const Layout& layout, const Where& where);

}  // namespace dtorch
