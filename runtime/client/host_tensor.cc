#include "runtime/client/host_tensor.h"

#include <ostream>
#include <sstream>

namespace dtorch {
namespace {

template <class T>
void print_element(std::ostream& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out << (value ? "true" : "false");
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    out << static_cast<float>(value);
  } else if constexpr (sizeof(T) == 1) {
    out << static_cast<int>(value);
  } else {
    out << value;
  }
}

}  // namespace

HostTensor::HostTensor(Shape shape, DType dtype)
    : shape_(shape),
      dtype_(dtype),
      bytes_(std::make_shared<std::vector<std::byte>>(static_cast<size_t>(num_bytes()))) {}

HostTensor::HostTensor(Shape shape, DType dtype, std::shared_ptr<std::vector<std::byte>> bytes)
    : shape_(shape), dtype_(dtype), bytes_(std::move(bytes)) {
  if (!bytes_ || static_cast<int64_t>(bytes_->size()) != num_bytes()) {
    throw ShapeError("[HostTensor] shape " + shape_.str() + " of " + name_of(dtype_) + " needs " +
                     std::to_string(num_elements()) + " values (" + std::to_string(num_bytes()) + " bytes), got " +
                     std::to_string(bytes_ ? static_cast<int64_t>(bytes_->size()) / size_of(dtype_) : 0));
  }
}

HostTensor HostTensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  HostTensor result(shape_, dtype);
  visit_dtype(dtype_, [&]<class From>() {
    visit_dtype(dtype, [&]<class To>() {
      const From* from = reinterpret_cast<const From*>(bytes());
      To* to = reinterpret_cast<To*>(result.mutable_bytes());
      for (int64_t i = 0; i < num_elements(); ++i) {
        if constexpr (std::is_same_v<To, bool>) {
          to[i] = from[i] != From{};
        } else {
          to[i] = static_cast<To>(from[i]);
        }
      }
    });
  });
  return result;
}

bool HostTensor::equals(const HostTensor& other) const {
  if (!defined() || !other.defined()) return defined() == other.defined();
  return shape_ == other.shape_ && dtype_ == other.dtype_ && *bytes_ == *other.bytes_;
}

std::string HostTensor::str() const {
  if (!defined()) return "HostTensor (undefined)";
  constexpr int64_t kShown = 16;
  std::ostringstream out;
  out << name_of(dtype_) << ' ' << shape_.str() << " {";
  visit_dtype(dtype_, [&]<class T>() {
    for (int64_t i = 0; i < std::min(num_elements(), kShown); ++i) {
      if (i > 0) out << ", ";
      print_element(out, element<T>(i));
    }
  });
  out << (num_elements() > kShown ? ", ...}" : "}");
  return out.str();
}

void HostTensor::check_type(DType asked) const {
  if (asked == dtype_) return;
  throw DTypeError(std::string("[HostTensor] the elements are ") + name_of(dtype_) + ", asked for " + name_of(asked) +
                   "; at<T>() and to(dtype) convert");
}

int64_t HostTensor::offset_of(const Shape& index) const {
  bool inside = index.ndim() == shape_.ndim();
  int64_t offset = 0;
  for (int64_t dim = 0; inside && dim < shape_.ndim(); ++dim) {
    inside = index[dim] >= 0 && index[dim] < shape_[dim];
    offset = offset * shape_[dim] + index[dim];
  }
  if (!inside) throw ShapeError("[HostTensor] index " + index.str() + " is outside of shape " + shape_.str());
  return offset;
}

std::ostream& operator<<(std::ostream& out, const HostTensor& tensor) { return out << tensor.str(); }

}  // namespace dtorch
