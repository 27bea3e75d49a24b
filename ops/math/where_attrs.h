// Attributes of the operator `where`, which generators of kernels read too. Not for users.
#pragma once
#include <cstdint>

#include "ops/math/operators.h"

namespace dtorch::math {

struct WhereAttrs {
  int64_t number = kNoNumber;
  bool number_first = false;  // the number stands for a, not for b
  bool number_is_zero = false;
  template <class V>
  void fields(V& v) {
    v("number", number);
    v("number_first", number_first);
    v("number_is_zero", number_is_zero);
  }
};

}  // namespace dtorch::math
