// Attributes of dropout, which other backends' kernels read too. Not for users.
#pragma once

namespace dtorch::nn_ops {

struct DropoutAttrs {
  double p = 0.5;
  template <class V>
  void fields(V& v) {
    v("p", p);
  }
};

}  // namespace dtorch::nn_ops
