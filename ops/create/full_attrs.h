// Attributes of full, which accelerators fill memory for.
#pragma once
#include "ops/create/operators.h"

namespace dtorch::create {

struct FullAttrs : CreateAttrs {
  bool floating = false;  // the value is a double, not an integer
  template <class V>
  void fields(V& v) {
    CreateAttrs::fields(v);
    v("floating", floating);
  }
};

}  // namespace dtorch::create
