// Views that are permute, reshape, expand, squeeze or unsqueeze by other names: movedim, swapaxes, swapdims,
// broadcast_to, expand_as, view_as, reshape_as, ravel, unflatten, atleast_1d, atleast_2d, atleast_3d, and squeeze and
// unsqueeze of several dims. Layouts and gradients are those of the operators that they record; of a tensor that only
// gives a shape nothing else is used.
#include <algorithm>

#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"

namespace dtorch {
namespace {

using namespace shaping;

std::vector<int64_t> sizes_of_shape(const Tensor& x) { return {x.shape().begin(), x.shape().end()}; }

std::vector<Sample> movedim_samples() {
  return {{.name = "two dims", .inputs = {{{5, 3, 2}}}, .call = single([](const auto& in) {
                                                          return movedim(in[0], {0, -1}, {2, 0});
                                                        })},
          {.name = "one dim, size 1", .inputs = {{{5, 1, 2}, kFloat64}}, .call = single([](const auto& in) {
                                                                           return movedim(in[0], 2, 0);
                                                                         })}};
}
std::vector<Sample> swapaxes_samples() {
  return {{.name = "uneven", .inputs = {{{5, 3, 2}}}, .call = single([](const auto& in) {
                                                        return swapaxes(in[0], 0, -1);
                                                      })},
          {.name = "size 1", .inputs = {{{5, 1}, kFloat64}}, .call = single([](const auto& in) {
                                                               return swapdims(in[0], 0, 1);
                                                             })}};
}
std::vector<Sample> broadcast_to_samples() {
  return {{.name = "a dim grows", .inputs = {{{5, 1}}}, .call = single([](const auto& in) {
                                                          return broadcast_to(in[0], {2, 5, 3});
                                                        })},
          {.name = "empty", .inputs = {{{0, 1}, kFloat64}}, .call = single([](const auto& in) {
                                                              return broadcast_to(in[0], {0, 3});
                                                            })}};
}
std::vector<Sample> expand_as_samples() {
  return {{.name = "a dim grows", .inputs = {{{5, 1}}, {{5, 3}}}, .call = single([](const auto& in) {
                                                                    return expand_as(in[0], in[1]);
                                                                  })},
          {.name = "new dim, empty",
           .inputs = {{{1, 3}, kFloat64}, {{2, 0, 3}, kFloat64}},
           .call = single([](const auto& in) { return expand_as(in[0], in[1]); })}};
}
template <Tensor (*kFunction)(const Tensor&, const Tensor&, Where)>
std::vector<Sample> as_samples() {
  const auto call = single([](const auto& in) { return kFunction(in[0], in[1], Where::current()); });
  return {{.name = "splits a dim", .inputs = {{{5, 6}}, {{5, 3, 2}}}, .call = call},
          {.name = "merges, size 1", .inputs = {{{5, 1, 2}, kFloat64}, {{5, 2}, kFloat64}}, .call = call}};
}
std::vector<Sample> ravel_samples() {
  return {
      {.name = "matrix", .inputs = {{{6, 2}}}, .call = single([](const auto& in) { return ravel(in[0]); })},
      {.name = "size 1", .inputs = {{{1, 5}, kFloat64}}, .call = single([](const auto& in) { return ravel(in[0]); })}};
}
std::vector<Sample> unflatten_samples() {
  return {{.name = "one size is -1", .inputs = {{{5, 6}}}, .call = single([](const auto& in) {
                                                             return unflatten(in[0], 1, {3, -1});
                                                           })},
          {.name = "adds a size 1", .inputs = {{{5, 1}, kFloat64}}, .call = single([](const auto& in) {
                                                                      return unflatten(in[0], 0, {1, 5});
                                                                    })}};
}
template <Tensor (*kFunction)(const Tensor&, Where)>
std::vector<Sample> atleast_samples() {
  const auto call = single([](const auto& in) { return kFunction(in[0], Where::current()); });
  return {{.name = "no dims", .inputs = {{{}}}, .call = call},
          {.name = "one dim", .inputs = {{{5}, kFloat64}}, .call = call},
          {.name = "two dims", .inputs = {{{5, 1}, kFloat64}}, .call = call}};
}

void need_as_many(const std::vector<int64_t>& source, const std::vector<int64_t>& destination, const Where& where) {
  if (source.size() == destination.size()) return;
  throw at_line(ShapeError("[movedim] got " + std::to_string(source.size()) + " source and " +
                           std::to_string(destination.size()) + " destination dims, needs as many of both"),
                where);
}

}  // namespace

constinit OperatorDef movedim_op =
    composition("movedim", "movedim(x, source, destination) -> Tensor", movedim_samples, "x");
constinit OperatorDef swapaxes_op =
    composition("swapaxes", "swapaxes(x, axis0, axis1) -> Tensor", swapaxes_samples, "x");
constinit OperatorDef broadcast_to_op =
    composition("broadcast_to", "broadcast_to(x, shape) -> Tensor", broadcast_to_samples, "x");
constinit OperatorDef expand_as_op = composition("expand_as", "expand_as(x, other) -> Tensor", expand_as_samples, "x");
constinit OperatorDef view_as_op = composition("view_as", "view_as(x, other) -> Tensor", as_samples<view_as>, "x");
constinit OperatorDef reshape_as_op =
    composition("reshape_as", "reshape_as(x, other) -> Tensor", as_samples<reshape_as>, "x");
constinit OperatorDef ravel_op = composition("ravel", "ravel(x) -> Tensor", ravel_samples, "x");
constinit OperatorDef unflatten_op =
    composition("unflatten", "unflatten(x, dim, sizes) -> Tensor", unflatten_samples, "x");
constinit OperatorDef atleast_1d_op =
    composition("atleast_1d", "atleast_1d(x) -> Tensor", atleast_samples<atleast_1d>, "x");
constinit OperatorDef atleast_2d_op =
    composition("atleast_2d", "atleast_2d(x) -> Tensor", atleast_samples<atleast_2d>, "x");
constinit OperatorDef atleast_3d_op =
    composition("atleast_3d", "atleast_3d(x) -> Tensor", atleast_samples<atleast_3d>, "x");

Tensor movedim(const Tensor& x, const std::vector<int64_t>& source, const std::vector<int64_t>& destination,
               Where where) {
  need_as_many(source, destination, where);
  distinct_dims("movedim", source, x.ndim(), where);
  distinct_dims("movedim", destination, x.ndim(), where);
  std::vector<int64_t> dims(static_cast<size_t>(x.ndim()), -1), rest;
  std::vector<bool> moved(static_cast<size_t>(x.ndim()), false);
  for (size_t i = 0; i < source.size(); ++i) {
    const int64_t from = normalize_dim(source[i], x.ndim(), "movedim");
    dims[static_cast<size_t>(normalize_dim(destination[i], x.ndim(), "movedim"))] = from;
    moved[static_cast<size_t>(from)] = true;
  }
  int64_t next = 0;
  for (int64_t& dim : dims) {
    if (dim >= 0) continue;
    while (moved[static_cast<size_t>(next)]) ++next;
    dim = next++;
  }
  return permute(x, dims, where);
}
Tensor movedim(const Tensor& x, int64_t source, int64_t destination, Where where) {
  return movedim(x, std::vector<int64_t>{source}, std::vector<int64_t>{destination}, where);
}
Tensor swapaxes(const Tensor& x, int64_t axis0, int64_t axis1, Where where) {
  return transpose(x, axis0, axis1, where);
}
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1, Where where) { return transpose(x, dim0, dim1, where); }

Tensor broadcast_to(const Tensor& x, const std::vector<int64_t>& shape, Where where) { return expand(x, shape, where); }
Tensor expand_as(const Tensor& x, const Tensor& other, Where where) { return expand(x, sizes_of_shape(other), where); }
Tensor view_as(const Tensor& x, const Tensor& other, Where where) { return view(x, sizes_of_shape(other), where); }
Tensor reshape_as(const Tensor& x, const Tensor& other, Where where) {
  return reshape(x, sizes_of_shape(other), where);
}
Tensor ravel(const Tensor& x, Where where) { return x.ndim() == 1 ? x : reshape(x, {-1}, where); }
Tensor unflatten(const Tensor& x, int64_t dim, const std::vector<int64_t>& sizes, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "unflatten", where);
  int64_t known = 1;
  for (int64_t size : sizes) known *= size == -1 ? 1 : size;
  std::vector<int64_t> shape = sizes_of_shape(x), own = sizes;
  const auto unknown = std::ranges::find(own, -1);
  if (unknown != own.end() && known > 0) *unknown = x.shape()[d] / known;
  int64_t product = own.empty() ? -1 : 1;
  for (int64_t size : own) product *= size;
  if (product != x.shape()[d] || std::ranges::any_of(own, [](int64_t size) { return size < 0; })) {
    throw at_line(ShapeError("[unflatten] dim " + std::to_string(d) + " of " + x.shape().str() +
                             " can't become dims of sizes " + Shape(sizes.begin(), sizes.end()).str()),
                  where);
  }
  shape.erase(shape.begin() + d);
  shape.insert(shape.begin() + d, own.begin(), own.end());
  return reshape(x, shape, where);
}

Tensor atleast_1d(const Tensor& x, Where where) { return x.ndim() == 0 ? unsqueeze(x, 0, where) : x; }
Tensor atleast_2d(const Tensor& x, Where where) { return x.ndim() < 2 ? unsqueeze(atleast_1d(x, where), 0, where) : x; }
Tensor atleast_3d(const Tensor& x, Where where) {
  return x.ndim() < 3 ? unsqueeze(atleast_2d(x, where), -1, where) : x;
}

Tensor squeeze(const Tensor& x, const std::vector<int64_t>& dims, Where where) {
  if (x.ndim() == 0) return x;
  const std::vector<int64_t> ascending = distinct_dims("squeeze", dims, x.ndim(), where);
  Tensor result = x;
  for (auto d = ascending.rbegin(); d != ascending.rend(); ++d) result = squeeze(result, *d, where);
  return result;
}
Tensor unsqueeze(const Tensor& x, const std::vector<int64_t>& dims, Where where) {
  Tensor result = x;
  for (int64_t d : distinct_dims("unsqueeze", dims, x.ndim() + std::ssize(dims), where)) {
    result = unsqueeze(result, d, where);
  }
  return result;
}

}  // namespace dtorch
