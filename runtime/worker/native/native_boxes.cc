// The part of NativeTensor that both builds share: copies between boxes of any strides. Dims that lie one after the
// other on both sides are merged first, so that a whole tensor is one memcpy and a slice of rows a few.
#include <cstring>

#include "ops/def/native_tensor.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {
namespace {

struct Strided {
  std::byte* data = nullptr;
  Shape strides;  // in bytes
};

Strided box_of(const NativeTensor& tensor, const Box& box) {
  DTORCH_CHECK(whole(tensor.local_shape()).contains(box), "box " + box.str() + " of " + tensor.str());
  Strided result{tensor.data(), tensor.strides()};
  int64_t bytes = size_of(tensor.dtype());
  for (int64_t dim = 0; dim < box.ndim(); ++dim) {
    result.strides[dim] *= bytes;
    result.data += box.offset[dim] * result.strides[dim];
  }
  return result;
}

Strided packed_box(const std::byte* packed, const Shape& size, int64_t bytes) {
  Strided result{const_cast<std::byte*>(packed), contiguous_strides(size)};
  for (int64_t& stride : result.strides) stride *= bytes;
  return result;
}

template <class T>
void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T item;
    std::memcpy(&item, from + i * from_stride, sizeof item);
    std::memcpy(to + i * to_stride, &item, sizeof item);
  }
}

class BoxCopy {
 public:
  BoxCopy(const Shape& size, const Strided& from, const Strided& to, int64_t bytes) : bytes_(bytes) {
    for (int64_t dim = 0; dim < size.size(); ++dim) {
      if (size[dim] == 1) continue;
      int64_t last = size_.size() - 1;
      if (last >= 0 && from_[last] == from.strides[dim] * size[dim] && to_[last] == to.strides[dim] * size[dim]) {
        size_[last] *= size[dim];
        from_[last] = from.strides[dim];
        to_[last] = to.strides[dim];
      } else {
        size_.push_back(size[dim]);
        from_.push_back(from.strides[dim]);
        to_.push_back(to.strides[dim]);
      }
    }
    if (size_.empty()) {
      size_.push_back(1);
      from_.push_back(bytes);
      to_.push_back(bytes);
    }
  }
  void run(const std::byte* from, std::byte* to, int64_t dim = 0) const {
    if (dim + 1 == size_.size()) return run_row(from, to, dim);
    for (int64_t i = 0; i < size_[dim]; ++i) run(from + i * from_[dim], to + i * to_[dim], dim + 1);
  }

 private:
  void run_row(const std::byte* from, std::byte* to, int64_t dim) const {
    if (from_[dim] == bytes_ && to_[dim] == bytes_) {
      std::memcpy(to, from, static_cast<size_t>(size_[dim] * bytes_));
      return;
    }
    switch (bytes_) {
      case 1:
        return copy_row<uint8_t>(from, from_[dim], to, to_[dim], size_[dim]);
      case 2:
        return copy_row<uint16_t>(from, from_[dim], to, to_[dim], size_[dim]);
      case 4:
        return copy_row<uint32_t>(from, from_[dim], to, to_[dim], size_[dim]);
      default:
        return copy_row<uint64_t>(from, from_[dim], to, to_[dim], size_[dim]);
    }
  }
  int64_t bytes_;
  Shape size_, from_, to_;  // merged dims; strides in bytes
};

void copy(const Shape& size, const Strided& from, const Strided& to, int64_t bytes) {
  if (size.num_elements() == 0) return;
  BoxCopy(size, from, to, bytes).run(from.data, to.data);
}

}  // namespace

void copy_box(const NativeTensor& source, const Box& source_box, const NativeTensor& destination,
              const Box& destination_box) {
  DTORCH_CHECK(source_box.size == destination_box.size && source.dtype() == destination.dtype(),
               source.str() + source_box.str() + " onto " + destination.str() + destination_box.str());
  copy(source_box.size, box_of(source, source_box), box_of(destination, destination_box), size_of(source.dtype()));
}

void pack_box(const NativeTensor& source, const Box& box, std::byte* packed) {
  int64_t bytes = size_of(source.dtype());
  copy(box.size, box_of(source, box), packed_box(packed, box.size, bytes), bytes);
}

void unpack_box(const std::byte* packed, const NativeTensor& destination, const Box& box) {
  int64_t bytes = size_of(destination.dtype());
  copy(box.size, packed_box(packed, box.size, bytes), box_of(destination, box), bytes);
}

NativeTensor NativeTensor::contiguous() const {
  Shape shape = local_shape();
  if (is_contiguous()) {
    const Shape strides = contiguous_strides(shape);
    return this->strides() == strides ? *this : strided_view(*this, shape, strides, 0);
  }
  NativeTensor result = empty(shape, dtype());
  copy_box(*this, whole(shape), result, whole(shape));
  return result;
}

std::string NativeTensor::str() const {
  if (!impl_) return "(no tensor)";
  return std::string(name_of(dtype())) + " " + local_shape().str();
}

}  // namespace dtorch
