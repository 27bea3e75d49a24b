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

}  // namespace dtorch
