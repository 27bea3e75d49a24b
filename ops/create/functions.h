// User-facing functions that create tensors. The logical value is what is asked, whatever the placement (ones with
// Partial(sum) is 1); every device makes only its own part. Throw ShapeError, DTypeError, MeshError at the call.
#pragma once
#include <functional>
#include <optional>

#include "runtime/client/host_tensor.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// A plain number: the operand of an operator, or a value to fill with. Remembers whether it is an integer (bool counts
// as one).
struct Number {
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Number(T number)
      : is_floating(std::is_floating_point_v<T>),
        floating(static_cast<double>(number)),
        integer(is_floating ? 0 : static_cast<int64_t>(number)) {}
  bool is_floating;
  double floating;
  int64_t integer;
  Scalar scalar() const { return is_floating ? Scalar::of(floating) : Scalar::of_int(integer); }
};

// Values are unspecified by contract (PyTorch's empty); in fact zeros, so that they don't depend on the layout.
Tensor empty(const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor zeros(const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor ones(const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor full(const Shape& shape, Number value, const TensorOptions& options = {}, Where where = Where::current());
// start, start + step, ... below `end` (above, when step is negative): [ceil((end - start) / step)]. Without a dtype:
// int64 when all numbers are integers, else float32.
Tensor arange(Number end, const TensorOptions& options = {}, Where where = Where::current());
Tensor arange(Number start, Number end, const TensorOptions& options = {}, Where where = Where::current());
Tensor arange(Number start, Number end, Number step, const TensorOptions& options = {}, Where where = Where::current());
// Ones on the diagonal: [n, n] or [n, m].
Tensor eye(int64_t n, const TensorOptions& options = {}, Where where = Where::current());
Tensor eye(int64_t n, int64_t m, const TensorOptions& options = {}, Where where = Where::current());

// Random values are a function of (seed of the Graph, number of the random call, global element number): bitwise the
// same on any layout. Uniform in [0, 1); standard normal; uniform integers in [low, high), int64 without a dtype.
Tensor rand(const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor randn(const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor randint(int64_t high, const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& options = {},
               Where where = Where::current());

// The whole tensor from this process's memory. The dtype is the host tensor's; options.dtype is not read.
Tensor from_host(const HostTensor& host, const TensorOptions& options = {}, Where where = Where::current());
// Each device's part from `make(device, local shape)`, called here, once a device of the mesh in mesh order: for tests
// and own loaders. Parts of a Partial are taken as they are; parts that several devices hold should be equal (not
// checked). Throws ShapeError or DTypeError when a part has another shape than asked or another dtype than the first.
Tensor from_local(const DeviceMesh& mesh, const Placements& placements,
                  const std::function<HostTensor(int64_t device, Shape local_shape)>& make, const Shape& global_shape,
                  Where where = Where::current());
Tensor from_local(const Layout& layout, const std::function<HostTensor(int64_t device, Shape local_shape)>& make,
                  const Shape& global_shape, Where where = Where::current());

// Shape, layout and, unless given, dtype of `other` (Partial becomes Replicate).
Tensor empty_like(const Tensor& other, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor zeros_like(const Tensor& other, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor ones_like(const Tensor& other, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor full_like(const Tensor& other, Number value, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor rand_like(const Tensor& other, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor randn_like(const Tensor& other, std::optional<DType> dtype = {}, Where where = Where::current());

// Of an explicit layout.
Tensor full_with_layout(const Shape& shape, Number value, DType dtype, const Layout& layout,
                        Where where = Where::current());

}  // namespace dtorch
