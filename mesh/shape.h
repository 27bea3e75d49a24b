// Shape (sizes of a tensor's dims) and Box (a rectangular part of a tensor in global coordinates). Pure values.
#pragma once
#include <iosfwd>
#include <string>

#include "runtime/base/inline_vector.h"

namespace dtorch {

inline constexpr int kMaxDims = 8;

// Sizes of a tensor's dims, at most kMaxDims. {} is a scalar.
class Shape : public InlineVector<int64_t, kMaxDims> {
 public:
  using InlineVector::InlineVector;
  int64_t ndim() const { return size(); }
  int64_t num_elements() const;  // 1 for a scalar; checked: throws ShapeError on overflow of int64
  std::string str() const;       // "[2, 3]"
};
std::ostream& operator<<(std::ostream& out, const Shape& shape);

// Row-major strides in elements.
Shape contiguous_strides(const Shape& shape);

// Normalises a dim in [-ndim, ndim) to [0, ndim). Throws ShapeError "[op] dim 7 is outside [-3, 3)".
int64_t normalize_dim(int64_t dim, int64_t ndim, const char* op);

// Shape of the result of broadcasting a with b; throws ShapeError that names op and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

// offset[d] .. offset[d] + size[d] in each dim, in global coordinates.
struct Box {
  Shape offset;
  Shape size;
  int64_t ndim() const { return size.size(); }
  int64_t num_elements() const { return size.num_elements(); }
  bool empty() const;
  bool contains(const Box& inner) const;
  std::string str() const;  // "[0:2, 3:5]"
  friend bool operator==(const Box& a, const Box& b) { return a.offset == b.offset && a.size == b.size; }
};
Box whole(const Shape& global_shape);
// Empty boxes have size 0 in at least one dim.
Box intersect(const Box& a, const Box& b);
std::ostream& operator<<(std::ostream& out, const Box& box);

// Calls f(global row-major number of the first element, local offset, length) for every stretch of the box that is
// contiguous in the global tensor, in local order.
template <class F>
void for_each_contiguous_run(const Shape& global_shape, const Box& box, F&& f) {
  if (box.num_elements() == 0) return;
  int64_t outer = box.ndim();  // dims outer.. are one stretch
  int64_t length = 1;
  while (outer > 0) {
    --outer;
    length *= box.size[outer];
    if (box.size[outer] != global_shape[outer]) break;
  }
  Shape index(outer, 0);
  const Shape strides = contiguous_strides(global_shape);
  int64_t inner_start = 0;
  for (int64_t d = outer; d < box.ndim(); ++d) inner_start += box.offset[d] * strides[d];
  for (int64_t local = 0;; local += length) {
    int64_t start = inner_start;
    for (int64_t d = 0; d < outer; ++d) start += (box.offset[d] + index[d]) * strides[d];
    f(start, local, length);
    int64_t d = outer - 1;
    while (d >= 0 && ++index[d] == box.size[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

}  // namespace dtorch
