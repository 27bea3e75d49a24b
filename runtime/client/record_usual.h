// record() for the operators that are called most, of two tensors with attributes that are always the same: what these
// come to is worked out once.
#pragma once
#include "runtime/client/inference.h"
#include "runtime/client/record.h"

namespace dtorch {

// Attributes that are encoded once; at most AttributeWords::kMaxBytes.
class FixedAttributes {
 public:
  template <class A>
  explicit FixedAttributes(const A& attributes)
      : encoded_(attributes), num_bytes_(encoded_.bytes().size()), words_(encoded_.bytes()) {
    DTORCH_CHECK(num_bytes_ <= AttributeWords::kMaxBytes, "attributes that are too long to be fixed");
  }
  std::string_view bytes() const { return encoded_.bytes(); }
  size_t num_bytes() const { return num_bytes_; }
  const AttributeWords& words() const { return words_; }

 private:
  const CallAttributes encoded_;
  const size_t num_bytes_;
  const AttributeWords words_;
};

// As record(op, attributes, {&a, &b}, where).
Tensor record_two(const OperatorDef& op, const FixedAttributes& attributes, const Tensor& a, const Tensor& b,
                  const Where& where);

}  // namespace dtorch
