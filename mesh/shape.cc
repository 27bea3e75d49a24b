// Shape and Box: sizes, strides, broadcasting, intersection.
#include "mesh/shape.h"

#include <ostream>

namespace dtorch {

int64_t Shape::num_elements() const {
  int64_t count = 1;
  bool overflow = false;
  bool zero = false;
  for (int64_t size : *this) {
    if (size < 0) throw ShapeError("negative size in shape " + str());
    if (size == 0) zero = true;
    overflow = overflow || __builtin_mul_overflow(count, size, &count);
  }
  if (zero) return 0;
  if (overflow) throw ShapeError("shape " + str() + " has more than 2^63 - 1 elements");
  return count;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int64_t d = 0; d < size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string((*this)[d]);
  return text + "]";
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (int64_t d = shape.size() - 2; d >= 0; --d) {
    strides[d] = strides[d + 1] * std::max<int64_t>(shape[d + 1], 1);
  }
  return strides;
}

int64_t normalize_dim(int64_t dim, int64_t ndim, const char* op) {
  if (dim < -ndim || dim >= ndim) {
    const std::string where = "[" + std::string(op) + "] dim " + std::to_string(dim) + " is outside ";
    if (ndim == 0) throw ShapeError(where + "[0, 0): a scalar has no dims");
    throw ShapeError(where + "[" + std::to_string(-ndim) + ", " + std::to_string(ndim) + ")");
  }
  return dim < 0 ? dim + ndim : dim;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  const int64_t ndim = std::max(a.ndim(), b.ndim());
  Shape result(ndim, 1);
  for (int64_t d = 0; d < ndim; ++d) {
    const int64_t in_a = d - (ndim - a.ndim());
    const int64_t in_b = d - (ndim - b.ndim());
    const int64_t size_a = in_a < 0 ? 1 : a[in_a];
    const int64_t size_b = in_b < 0 ? 1 : b[in_b];
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw ShapeError("[" + std::string(op) + "] shapes " + a.str() + " and " + b.str() +
                       " can't be broadcast: sizes " + std::to_string(size_a) + " and " + std::to_string(size_b) +
                       " differ and neither is 1");
    }
    result[d] = size_a == 1 ? size_b : size_a;
  }
  return result;
}

bool Box::empty() const {
  for (int64_t length : size) {
    if (length == 0) return true;
  }
  return false;
}

bool Box::contains(const Box& inner) const {
  if (inner.empty()) return true;
  for (int64_t d = 0; d < ndim(); ++d) {
    if (inner.offset[d] < offset[d] || inner.offset[d] + inner.size[d] > offset[d] + size[d]) return false;
  }
  return true;
}

std::string Box::str() const {
  std::string text = "[";
  for (int64_t d = 0; d < ndim(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(offset[d]) + ":" + std::to_string(offset[d] + size[d]);
  }
  return text + "]";
}

Box whole(const Shape& global_shape) { return {Shape(global_shape.size(), 0), global_shape}; }

Box intersect(const Box& a, const Box& b) {
  DTORCH_CHECK(a.ndim() == b.ndim(), a.str() + " and " + b.str());
  Box result = a;
  for (int64_t d = 0; d < a.ndim(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    result.offset[d] = begin;
    result.size[d] = std::max<int64_t>(end - begin, 0);
  }
  return result;
}

std::ostream& operator<<(std::ostream& out, const Box& box) { return out << box.str(); }

}  // namespace dtorch
