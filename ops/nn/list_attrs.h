// Attributes of operators on lists of tensors (optimizer_steps.cc), which other backends' kernels read too. Not for
// users.
#pragma once
#include <cstdint>

namespace dtorch::nn_ops {

// inputs: kinds of `count` tensors each (params, grads, ...).
struct ListAttrs {
  int64_t count = 0;
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;  // of AdamW
  double momentum = 0;                                     // of SGD
  bool nesterov = false, has_buffers = false;
  bool has_number = false;
  template <class V>
  void fields(V& v) {
    v("count", count);
    v("beta1", beta1);
    v("beta2", beta2);
    v("eps", eps);
    v("weight_decay", weight_decay);
    v("momentum", momentum);
    v("nesterov", nesterov);
    v("has_buffers", has_buffers);
    v("has_number", has_number);
  }
};

}  // namespace dtorch::nn_ops
