// tensor_split(x, sections or indices, dim), hsplit, vsplit and dsplit: split by other sizes. Also the definitions of
// select and narrow, which are slices. Layouts and gradients are those of split (a sharded dim is refused) and slice.
#include <algorithm>

#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"

namespace dtorch {
namespace {

using namespace shaping;

std::vector<Sample> tensor_split_samples() {
  return {{.name = "sections, uneven",
           .inputs = {{{7, 3}}},
           .call = [](const std::vector<Tensor>& in) { return tensor_split(in[0], 3); }},
          {.name = "indices outside and out of order, size 1",
           .inputs = {{{5, 1}, kFloat64}},
           .call = [](const std::vector<Tensor>& in) {
             return tensor_split(in[0], std::vector<int64_t>{1, -1, 9}, 0);
           }}};
}
std::vector<Sample> hsplit_samples() {
  return {
      {.name = "sections",
       .inputs = {{{5, 4}}},
       .call = [](const std::vector<Tensor>& in) { return hsplit(in[0], 2); }},
      {.name = "one row", .inputs = {{{1, 6}}}, .call = [](const std::vector<Tensor>& in) { return hsplit(in[0], 3); }},
      {.name = "vector, indices", .inputs = {{{5}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
         return hsplit(in[0], std::vector<int64_t>{2});
       }}};
}
std::vector<Sample> vsplit_samples() {
  return {{.name = "sections",
           .inputs = {{{4, 5}}},
           .call = [](const std::vector<Tensor>& in) { return vsplit(in[0], 2); }},
          {.name = "indices, size 1", .inputs = {{{5, 1}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return vsplit(in[0], std::vector<int64_t>{2});
           }}};
}
std::vector<Sample> dsplit_samples() {
  return {{.name = "sections",
           .inputs = {{{5, 1, 4}}},
           .call = [](const std::vector<Tensor>& in) { return dsplit(in[0], 2); }},
          {.name = "indices", .inputs = {{{2, 3, 5}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return dsplit(in[0], std::vector<int64_t>{2});
           }}};
}
std::vector<Sample> select_samples() {
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) { return select(in[0], 0, 3); })},
          {.name = "from the end, size 1", .inputs = {{{1, 5}, kFloat64}}, .call = single([](const auto& in) {
                                                                             return select(in[0], 1, -2);
                                                                           })}};
}
std::vector<Sample> narrow_samples() {
  return {
      {.name = "uneven", .inputs = {{{5, 3}}}, .call = single([](const auto& in) { return narrow(in[0], 0, 1, 3); })},
      {.name = "from the end, size 1", .inputs = {{{1, 5}, kFloat64}}, .call = single([](const auto& in) {
                                                                         return narrow(in[0], 1, -2, 2);
                                                                       })}};
}

// Which dim hsplit, vsplit and dsplit mean; throws ShapeError when x has too few.
int64_t dim_of(const char* op, const Tensor& x, int64_t dim, const Where& where) {
  if (x.ndim() > dim) return dim;
  throw at_line(ShapeError("[" + std::string(op) + "] needs at least " + std::to_string(dim + 1) + " dims, got " +
                           x.shape().str()),
                where);
}
int64_t horizontal_dim(const Tensor& x, const Where& where) {
  return x.ndim() == 1 ? 0 : dim_of("hsplit", x, 1, where);
}

std::vector<Tensor> split_equally(const char* op, const Tensor& x, int64_t sections, int64_t dim, const Where& where) {
  if (sections <= 0 || x.shape()[dim] % sections != 0) {
    throw at_line(ShapeError("[" + std::string(op) + "] dim " + std::to_string(dim) + " of " + x.shape().str() +
                             " can't be split into " + std::to_string(sections) +
                             " equal sections; tensor_split allows unequal ones"),
                  where);
  }
  return tensor_split(x, sections, dim, where);
}

}  // namespace

constinit OperatorDef tensor_split_op =
    composition("tensor_split", "tensor_split(x, sections or indices, dim) -> [Tensor]", tensor_split_samples, "x");
constinit OperatorDef hsplit_op =
    composition("hsplit", "hsplit(x, sections or indices) -> [Tensor]", hsplit_samples, "x");
constinit OperatorDef vsplit_op =
    composition("vsplit", "vsplit(x, sections or indices) -> [Tensor]", vsplit_samples, "x");
constinit OperatorDef dsplit_op =
    composition("dsplit", "dsplit(x, sections or indices) -> [Tensor]", dsplit_samples, "x");
constinit OperatorDef select_op =
    composition("select", "select(x, dim, index) -> Tensor", select_samples, "x", PlacementClass::kCombines);
constinit OperatorDef narrow_op =
    composition("narrow", "narrow(x, dim, start, length) -> Tensor", narrow_samples, "x", PlacementClass::kCombines);

std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "tensor_split", where), size = x.shape()[d];
  if (sections <= 0) {
    throw at_line(UserError("[tensor_split] sections are " + std::to_string(sections) + ", must be positive"), where);
  }
  std::vector<int64_t> sizes(static_cast<size_t>(sections), size / sections);
  for (int64_t i = 0; i < size % sections; ++i) ++sizes[static_cast<size_t>(i)];
  return split(x, sizes, d, where);
}
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "tensor_split", where), size = x.shape()[d];
  // Each part is a slice; where the indices don't ascend it is empty, and the parts aren't those of one split.
  std::vector<int64_t> bounds = {0};
  for (int64_t index : indices) bounds.push_back(std::clamp<int64_t>(index < 0 ? index + size : index, 0, size));
  bounds.push_back(size);
  if (std::ranges::is_sorted(bounds)) {
    std::vector<int64_t> sizes;
    for (size_t i = 1; i < bounds.size(); ++i) sizes.push_back(bounds[i] - bounds[i - 1]);
    return split(x, sizes, d, where);
  }
  std::vector<Tensor> parts;
  for (size_t i = 1; i < bounds.size(); ++i) parts.push_back(slice(x, d, bounds[i - 1], bounds[i], 1, where));
  return parts;
}

std::vector<Tensor> hsplit(const Tensor& x, int64_t sections, Where where) {
  return split_equally("hsplit", x, sections, horizontal_dim(x, where), where);
}
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices, Where where) {
  return tensor_split(x, indices, horizontal_dim(x, where), where);
}
std::vector<Tensor> vsplit(const Tensor& x, int64_t sections, Where where) {
  dim_of("vsplit", x, 1, where);
  return split_equally("vsplit", x, sections, 0, where);
}
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices, Where where) {
  dim_of("vsplit", x, 1, where);
  return tensor_split(x, indices, 0, where);
}
std::vector<Tensor> dsplit(const Tensor& x, int64_t sections, Where where) {
  return split_equally("dsplit", x, sections, dim_of("dsplit", x, 2, where), where);
}
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices, Where where) {
  return tensor_split(x, indices, dim_of("dsplit", x, 2, where), where);
}

}  // namespace dtorch
