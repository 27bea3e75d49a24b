// Attributes of the operator `to`, which the client records too (redistribute with a dtype).
#pragma once
#include "mesh/dtype.h"

namespace dtorch {

struct CastAttrs {
  DType dtype = kFloat32;
  template <class V>
  void fields(V& v) {
    v("dtype", dtype);
  }
};

}  // namespace dtorch
