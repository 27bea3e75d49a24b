// nonzero(x) = argwhere(x): coordinates of the elements that aren't 0, row-major; masked_select(x, mask). Their shapes
// depend on data, which is read here; the coordinates are then Replicate, and masked_select picks by them.
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#include "runtime/client/graph.h"

namespace dtorch {
namespace {

using namespace indexing;

// Row-major numbers of the elements that aren't 0.
std::vector<int64_t> nonzero_numbers(const HostTensor& host) {
  std::vector<int64_t> numbers;
  visit_dtype(host.dtype(), [&]<class T>() {
    const T* values = reinterpret_cast<const T*>(host.bytes());
    for (int64_t i = 0; i < host.num_elements(); ++i) {
      if (static_cast<bool>(values[i] != T(0))) numbers.push_back(i);
    }
  });
  return numbers;
}

Tensor replicate_like(const Tensor& x, const Shape& shape, const std::vector<int64_t>& values, const Where& where) {
  const GraphScope graph(Graph(IntrusivePtr<GraphCore>(&x.value()->graph())));
  return from_host(HostTensor::of<int64_t>(shape, values), {.mesh = x.mesh()}, where);
}

std::vector<Sample> nonzero_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{nonzero(in[0])}; };
  return {{.name = "uneven", .inputs = {{{5, 3}, kBool, SampleFill::kBool}}, .call = call},
          {.name = "size 1, float64", .inputs = {{{1, 4}, kFloat64, SampleFill::kIota, 0, false}}, .call = call},
          {.name = "no elements", .inputs = {{{0, 3}, kInt64, SampleFill::kIota, 0, false}}, .call = call}};
}
std::vector<Sample> argwhere_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{argwhere(in[0])}; };
  return {{.name = "uneven", .inputs = {{{5, 3}, kInt32, SampleFill::kIndices, 2, false}}, .call = call},
          {.name = "size 1", .inputs = {{{1, 7}, kBool, SampleFill::kBool}}, .call = call}};
}
std::vector<Sample> masked_select_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{masked_select(in[0], in[1])}; };
  return {{.name = "uneven", .inputs = {{{5, 3}}, {{5, 3}, kBool, SampleFill::kBool}}, .call = call},
          {.name = "broadcast", .inputs = {{{1, 4}, kFloat64}, {{3, 1}, kBool, SampleFill::kBool}}, .call = call}};
}

}  // namespace

// Compositions.
constinit OperatorDef nonzero_op = {.name = "nonzero",
                                    .signature = "nonzero(x) -> Tensor",
                                    .samples = nonzero_samples,
                                    .placement_class = PlacementClass::kCombines};
constinit OperatorDef argwhere_op = {.name = "argwhere",
                                     .signature = "argwhere(x) -> Tensor",
                                     .samples = argwhere_samples,
                                     .placement_class = PlacementClass::kCombines};
constinit OperatorDef masked_select_op = {.name = "masked_select",
                                          .signature = "masked_select(x, mask) -> Tensor",
                                          .samples = masked_select_samples,
                                          .placement_class = PlacementClass::kCombines,
                                          .linear_in = "x"};

namespace indexing {

std::vector<Tensor> true_positions(const Tensor& mask, const Where& where) {
  const std::vector<int64_t> numbers = nonzero_numbers(mask.to_host(where));
  const Shape strides = contiguous_strides(mask.shape());
  std::vector<Tensor> positions;
  for (int64_t d = 0; d < mask.ndim(); ++d) {
    std::vector<int64_t> values;
    values.reserve(numbers.size());
    for (int64_t number : numbers) values.push_back(number / strides[d] % mask.shape()[d]);
    positions.push_back(replicate_like(mask, {static_cast<int64_t>(values.size())}, values, where));
  }
  return positions;
}

}  // namespace indexing

Tensor nonzero(const Tensor& x, Where where) {
  SourceScope scope(where);
  const std::vector<int64_t> numbers = nonzero_numbers(x.to_host(where));
  const Shape strides = contiguous_strides(x.shape());
  std::vector<int64_t> values;
  for (int64_t number : numbers) {
    for (int64_t d = 0; d < x.ndim(); ++d) values.push_back(number / strides[d] % x.shape()[d]);
  }
  return replicate_like(x, {static_cast<int64_t>(numbers.size()), x.ndim()}, values, where);
}

Tensor argwhere(const Tensor& x, Where where) { return nonzero(x, where); }

Tensor masked_select(const Tensor& x, const Tensor& mask, Where where) {
  SourceScope scope(where);
  if (mask.dtype() != kBool) {
    throw at_line(DTypeError(std::string("[masked_select] the mask is ") + name_of(mask.dtype()) + ", must be bool"),
                  where);
  }
  Shape shape = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  if (shape.ndim() == 0) shape = {1};
  IndexAttrs attributes;
  for (int64_t d = 0; d < shape.ndim(); ++d) attributes.dims.push_back(d);
  const std::vector<Tensor> positions = true_positions(broadcast_to("masked_select", mask, shape, where), where);
  return pick("masked_select", broadcast_to("masked_select", x, shape, where), positions, attributes, where);
}

}  // namespace dtorch
