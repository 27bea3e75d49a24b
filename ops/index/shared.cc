// What the files of this room share before they record their operator.
#include "ops/index/operators.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#include "runtime/client/graph.h"

namespace dtorch::indexing {

void need_index(const char* op, const Tensor& index, const Where& where) {
  if (index.dtype() == kInt64 || index.dtype() == kInt32) return;
  throw at_line(
      DTypeError(std::string("[") + op + "] an index is " + name_of(index.dtype()) + ", allowed are int64 and int32"),
      where);
}

void need_same_dtype(const char* op, const Tensor& x, const Tensor& values, const Where& where) {
  if (x.dtype() == values.dtype()) return;
  throw at_line(DTypeError(std::string("[") + op + "] x is " + name_of(x.dtype()) + ", what is put into it " +
                           name_of(values.dtype()) + "; they must have one dtype"),
                where);
}

Tensor broadcast_to(const char* op, const Tensor& x, const Shape& shape, const Where& where) {
  if (x.shape() == shape) return x;
  const int64_t added = shape.ndim() - x.ndim();
  bool fits = added >= 0;
  for (int64_t d = 0; fits && d < x.ndim(); ++d) fits = x.shape()[d] == shape[d + added] || x.shape()[d] == 1;
  if (!fits) {
    throw at_line(ShapeError(std::string("[") + op + "] " + x.shape().str() + " doesn't broadcast to " + shape.str()),
                  where);
  }
  Placements placements = x.placements();
  for (Placement& placement : placements) {
    if (placement.is_shard() && x.shape()[placement.dim] != shape[placement.dim + added]) placement = Replicate();
  }
  const Layout layout = x.layout().with_placements(placements, x.ndim());
  require_implicit_redistribution(op, x, layout, where);
  return expand(x.redistribute(layout, where), {shape.begin(), shape.end()}, where);
}

Tensor replicated(const char* op, const Tensor& x, bool pending, const Where& where) {
  const Layout whole = unsharded_layout(x), layout = pending ? whole : whole.without_partial();
  require_implicit_redistribution(op, x, layout, where);
  return x.redistribute(layout, where);
}

Tensor zeros_with(const Tensor& like, const Shape& shape, const Layout& layout, const Where& where) {
  const GraphScope scope(Graph(IntrusivePtr<GraphCore>(&like.value()->graph())));
  return full_with_layout(shape, 0, like.dtype(), layout, where);
}

Tensor number_like(const Tensor& x, Number value, const Where& where) {
  const GraphScope scope(Graph(IntrusivePtr<GraphCore>(&x.value()->graph())));
  return full_with_layout(Shape{}, value, x.dtype(), Layout::replicated(x.mesh()), where);
}

SampleInput indices_below(int64_t bound, Shape shape, DType dtype) {
  return {shape, dtype, SampleFill::kIndices, bound, false};
}

}  // namespace dtorch::indexing
