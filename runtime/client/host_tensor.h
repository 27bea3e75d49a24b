// HostTensor: a whole tensor in this process's memory, row-major: what reads return and from_host takes. Copies share
// the bytes.
#pragma once
#include <cstddef>
#include <cstring>
#include <iosfwd>
#include <memory>
#include <vector>

#include "mesh/dtype.h"
#include "mesh/shape.h"

namespace dtorch {

class HostTensor {
 public:
  HostTensor() = default;
  // Zero-filled.
  HostTensor(Shape shape, DType dtype);
  HostTensor(Shape shape, DType dtype,
             std::shared_ptr<std::vector<std::byte>> bytes);  // throws ShapeError on a wrong size
  // Throws ShapeError when the number of values isn't that of the shape.
  template <class T>
  static HostTensor of(Shape shape, const std::vector<T>& values);
  template <class T>
  static HostTensor full(Shape shape, T value);

  bool defined() const { return bytes_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return num_elements() * size_of(dtype_); }
  const std::byte* bytes() const { return bytes_->data(); }
  std::byte* mutable_bytes() { return bytes_->data(); }
  const std::shared_ptr<std::vector<std::byte>>& shared_bytes() const { return bytes_; }
  // Throws DTypeError when T isn't the element type.
  template <class T>
  const T* data() const {
    check_type(dtype_of<T>());
    return reinterpret_cast<const T*>(bytes());
  }
  template <class T>
  T* mutable_data() {
    check_type(dtype_of<T>());
    return reinterpret_cast<T*>(mutable_bytes());
  }
  // Element at an index, one number a dim; throws ShapeError when outside. Converts from the element type to T.
  template <class T, class... I>
  T at(I... index) const {
    return element<T>(offset_of(Shape{static_cast<int64_t>(index)...}));
  }
  // Element at a row-major offset, converted to T.
  template <class T>
  T element(int64_t offset) const {
    return visit_dtype(dtype_, [&]<class S>() {
      S value;
      std::memcpy(&value, bytes() + static_cast<size_t>(offset) * sizeof(S), sizeof(S));
      return static_cast<T>(value);
    });
  }
  template <class T>
  std::vector<T> to_vector() const {
    std::vector<T> out(static_cast<size_t>(num_elements()));
    for (size_t i = 0; i < out.size(); ++i) out[i] = element<T>(static_cast<int64_t>(i));
    return out;
  }
  HostTensor to(DType dtype) const;
  bool equals(const HostTensor& other) const;  // shape, dtype and every bit
  std::string str() const;                     // shape, dtype and the first elements

 private:
  void check_type(DType asked) const;
  int64_t offset_of(const Shape& index) const;
  Shape shape_;
  DType dtype_ = kFloat32;
  std::shared_ptr<std::vector<std::byte>> bytes_;
};
std::ostream& operator<<(std::ostream& out, const HostTensor& tensor);

template <class T>
HostTensor HostTensor::of(Shape shape, const std::vector<T>& values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    for (size_t i = 0; i < values.size(); ++i) (*bytes)[i] = std::byte(values[i] ? 1 : 0);
  } else {
    if (!values.empty()) std::memcpy(bytes->data(), values.data(), bytes->size());
  }
  return HostTensor(shape, dtype_of<T>(), std::move(bytes));
}
template <class T>
HostTensor HostTensor::full(Shape shape, T value) {
  HostTensor tensor(shape, dtype_of<T>());
  T* data = tensor.mutable_data<T>();
  for (int64_t i = 0; i < tensor.num_elements(); ++i) data[i] = value;
  return tensor;
}

}  // namespace dtorch
