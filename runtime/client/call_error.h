// Errors of a call that are found before it is recorded: at_line puts the line of the call into their message, as
// record() does with what inference and matching find.
#pragma once
#include <string>

#include "mesh/shape.h"
#include "runtime/base/error.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// throw at_line(ShapeError("[stack] ..."), where);
template <class E>
E at_line(const E& error, const Where& where) {
  return E(error.what() + called_at(source_line(where)));
}

// As normalize_dim of mesh/shape.h; the error has the line of the call.
inline int64_t normalize_dim(int64_t dim, int64_t ndim, const char* op, const Where& where) {
  try {
    return normalize_dim(dim, ndim, op);
  } catch (const ShapeError& error) {
    throw at_line(error, where);
  }
}

}  // namespace dtorch
