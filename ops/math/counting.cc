// Compositions: nansum and nanmean leave NaN out; count_nonzero; aminmax; diff. They take every layout, as the
// reductions do of which they consist; what is pending in x is reduced first, since a NaN or 0 of a part says nothing
// of the value. nansum isn't linear: in its place the part of another device would count. diff over a sharded dim
// gathers it.
#include "ops/math/functions.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace {

using namespace math;

// Throws PlacementError of `op` for what the parts of the composition would combine.
void may_reduce(const char* op, const Tensor& x, const std::vector<int64_t>& dims, const Where& where) {
  require_implicit_redistribution(op, x, unsharded_over(x, dims), where);
}

std::vector<Sample> nansum_samples() {
  return {{.name = "all dims",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{nansum(in[0])}; }},
          {.name = "NaN, one dim",
           .inputs = {normal({7, 2}, kFloat64)},
           .call =
               [](const std::vector<Tensor>& in) {
                 const Tensor root = sqrt(reduce_pending("nansum", in[0], {}, Where::current()));
                 return std::vector<Tensor>{nansum(root.detach(), {0}), nansum(in[0], {1}, true)};
               }},
          {.name = "integers", .inputs = {integers({4, 1}, kInt32)}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{nansum(in[0], {0})};
           }}};
}
std::vector<Sample> nanmean_samples() {
  return {
      {.name = "all dims",
       .inputs = {normal({5, 3})},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{nanmean(in[0])}; }},
      {.name = "NaN, one dim, size 1", .inputs = {normal({7, 1}, kFloat64)}, .call = [](const std::vector<Tensor>& in) {
         const Tensor root = sqrt(reduce_pending("nanmean", in[0], {}, Where::current()));
         return std::vector<Tensor>{nanmean(root.detach(), {0}), nanmean(in[0], {1}, true)};
       }}};
}
std::vector<Sample> count_nonzero_samples() {
  return {{.name = "all dims",
           .inputs = {{{5, 3}, kInt32, SampleFill::kIndices, 3, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{count_nonzero(in[0])}; }},
          {.name = "one dim, size 1",
           .inputs = {{{7, 1}, kFloat64, SampleFill::kIndices, 2, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{count_nonzero(in[0], {0})}; }},
          {.name = "bool", .inputs = {{{3, 2}, kBool, SampleFill::kBool}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{count_nonzero(in[0], {0, 1})};
           }}};
}
std::vector<Sample> aminmax_samples() {
  const auto call = [](std::optional<int64_t> dim, bool keepdim) {
    return [=](const std::vector<Tensor>& in) {
      auto [least, largest] = aminmax(in[0], dim, keepdim);
      return std::vector<Tensor>{least, largest};
    };
  };
  return {{.name = "all dims", .inputs = {{{5, 3}, kFloat32, SampleFill::kDistinct}}, .call = call({}, false)},
          {.name = "one dim", .inputs = {{{7, 2}, kFloat64, SampleFill::kDistinct}}, .call = call(0, true)},
          {.name = "integers, size 1", .inputs = {integers({3, 1})}, .call = call(-1, false)}};
}
std::vector<Sample> diff_samples() {
  return {{.name = "last dim",
           .inputs = {normal({5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{diff(in[0])}; }},
          {.name = "twice, with ends",
           .inputs = {normal({7, 2}, kFloat64), normal({1, 2}, kFloat64)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{diff(in[0], 2, 0, in[1], in[1])}; }},
          {.name = "bool, size 1",
           .inputs = {{{1, 4}, kBool, SampleFill::kBool}},
           .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{diff(in[0]), diff(in[0], 1, 0)};
           }}};
}

}  // namespace

constinit OperatorDef nansum_op = {.name = "nansum",
                                   .signature = "nansum(x, dims, keepdim) -> Tensor",
                                   .samples = nansum_samples,
                                   .placement_class = PlacementClass::kCombines};
constinit OperatorDef nanmean_op = {.name = "nanmean",
                                    .signature = "nanmean(x, dims, keepdim) -> Tensor",
                                    .samples = nanmean_samples,
                                    .placement_class = PlacementClass::kCombines};
constinit OperatorDef count_nonzero_op = {.name = "count_nonzero",
                                          .signature = "count_nonzero(x, dims) -> Tensor",
                                          .samples = count_nonzero_samples,
                                          .placement_class = PlacementClass::kCombines};
constinit OperatorDef aminmax_op = {.name = "aminmax",
                                    .signature = "aminmax(x, dim, keepdim) -> (Tensor, Tensor)",
                                    .samples = aminmax_samples,
                                    .placement_class = PlacementClass::kCombines};
constinit OperatorDef diff_op = {.name = "diff",
                                 .signature = "diff(x, n, dim, prepend, append) -> Tensor",
                                 .samples = diff_samples,
                                 .placement_class = PlacementClass::kCombines,
                                 .linear_in = "x"};

Tensor nansum(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, std::optional<DType> dtype,
              Where where) {
  SourceScope scope(where);
  may_reduce("nansum", x, dims_of_call(dims, x, "nansum", where), where);
  const Tensor whole = reduce_pending("nansum", x, {}, where);
  if (!is_floating(x.dtype())) return sum(whole, dims, keepdim, dtype, where);
  return sum(dtorch::where(ne(whole, whole, where), 0, whole, where), dims, keepdim, dtype, where);
}

Tensor nanmean(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, std::optional<DType> dtype,
               Where where) {
  if (!is_floating(x.dtype())) {
    throw at_line(DTypeError(std::string("[nanmean] got ") + name_of(x.dtype()) +
                             ", needs a floating dtype; convert with to(kFloat32)"),
                  where);
  }
  SourceScope scope(where);
  may_reduce("nanmean", x, dims_of_call(dims, x, "nanmean", where), where);
  const Tensor whole = reduce_pending("nanmean", x, {}, where);
  const Tensor count = sum(eq(whole, whole, where), dims, keepdim, {}, where);
  return div(nansum(whole, dims, keepdim, dtype, where), count, where);
}

Tensor count_nonzero(const Tensor& x, const std::vector<int64_t>& dims, Where where) {
  SourceScope scope(where);
  may_reduce("count_nonzero", x, dims_of_call(dims, x, "count_nonzero", where), where);
  return sum(ne(reduce_pending("count_nonzero", x, {}, where), 0, where), dims, false, {}, where);
}

std::pair<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim, Where where) {
  SourceScope scope(where);
  std::vector<int64_t> dims;
  if (dim) dims.push_back(*dim);
  may_reduce("aminmax", x, dims_of_call(dims, x, "aminmax", where), where);
  return {amin(x, dims, keepdim, where), amax(x, dims, keepdim, where)};
}

Tensor diff(const Tensor& x, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append, Where where) {
  if (x.ndim() == 0) throw at_line(ShapeError("[diff] a tensor without dims has no neighbours"), where);
  if (n < 0) throw at_line(UserError("[diff] n is " + std::to_string(n) + ", must not be negative"), where);
  const int64_t d = normalize_dim(dim, x.ndim(), "diff", where);
  if (n == 0) return x;
  SourceScope scope(where);
  std::vector<Tensor> joined;
  for (const Tensor& part : {prepend, x, append}) {
    if (part.defined()) joined.push_back(part);
  }
  Tensor y = joined.size() == 1 ? shaping::gather_dim("diff", x, d, where) : cat(joined, d, where);
  for (int64_t i = 0; i < n && y.shape()[d] > 0; ++i) {
    const int64_t size = y.shape()[d];
    const Tensor after = slice(y, d, 1, size, 1, where), before = slice(y, d, 0, size - 1, 1, where);
    y = y.dtype() == kBool ? ne(after, before, where) : sub(after, before, where);
  }
  return y;
}

}  // namespace dtorch
