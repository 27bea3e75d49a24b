// Host values for tests, and the comparison of a distributed tensor, device by device, with the value that it should
// have.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch::checker {

// Element e (row-major) is 0.5 e - 3.
HostTensor iota(const Shape& shape, DType dtype = kFloat32);
// Element e is e, int64.
HostTensor seq(const Shape& shape);
// Pseudo-random, roughly standard normal; the same for the same seed on any machine.
HostTensor normal(const Shape& shape, DType dtype, uint64_t seed);

// The elements of a box (in coordinates of `whole`).
HostTensor part_of(const HostTensor& whole, const Box& box);
// What part `index` of `parts` holds of a Partial value, unevenly and really: floating sums are value * (index + 1) /
// (1 + .. + parts).
HostTensor partial_part(const HostTensor& value, int64_t index, int64_t parts, ReduceOp reduce);

// `value` spread as `layout` says; Partial axes get partial_part.
Tensor distribute(const HostTensor& value, const Layout& layout);
Tensor distribute(const HostTensor& value, const DeviceMesh& mesh, const Placements& placements);

// The largest absolute value that isn't infinite or NaN; 0 when there is none.
double largest(const HostTensor& tensor);
// "" when equal: shape, dtype, and every element: bit for bit when tolerance is 0 (any NaN equals any NaN), else within
// tolerance times the largest absolute value of `want`, or times least_scale when that is more.
std::string difference(const HostTensor& got, const HostTensor& want, double tolerance, double least_scale = 0);
// 1e-12 for float64, 1e-5 for float32, coarser for halves, 0 otherwise.
double default_tolerance(DType dtype);

// check_tensor in two steps: the reads start at once and are waited for later, so that many can be under way.
class TensorCheck {
 public:
  TensorCheck(const Tensor& tensor, HostTensor want, double tolerance, double least_scale = 0);
  // As check_tensor; throws what a read throws.
  std::string finish() const;

 private:
  std::string compare_parts() const;
  Shape shape_;
  DType dtype_;
  Layout layout_;
  HostTensor want_;
  double tolerance_, least_scale_;
  std::vector<TensorFuture> parts_;  // by device, in mesh order
  TensorFuture whole_;
};

// Reads `tensor` whole and device by device. "" when shape, dtype, every device's local shape and content agree with
// its placements and with `want`; parts of Partial axes must reduce to it.
std::string check_tensor(const Tensor& tensor, const HostTensor& want, double tolerance, double least_scale = 0);
inline std::string check_tensor(const Tensor& tensor, const HostTensor& want) {
  return check_tensor(tensor, want, default_tolerance(want.dtype()));
}

// Local shapes in mesh order, as the devices really hold them.
std::vector<Shape> local_shapes(const Tensor& tensor);

}  // namespace dtorch::checker
