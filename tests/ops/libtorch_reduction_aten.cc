// Cases of libtorch_cases_aten.h: reductions, running values, sorting and counting.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nanmean.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/std_mean.h>
#include <ATen/ops/var_mean.h>

#include <limits>
#include <optional>
#include <tuple>

#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
std::vector<T> list_of(const std::pair<T, T>& both) {
  return {both.first, both.second};
}
Theirs list_of(const std::tuple<at::Tensor, at::Tensor>& both) { return {std::get<0>(both), std::get<1>(both)}; }

// OURS and THEIRS give two tensors.
#define DTORCH_PAIR_CASE(op, inputs, OURS, THEIRS)                                       \
  cases.add(                                                                             \
      op, std::vector<SampleInput> inputs, [](const Ours& in) { return list_of(OURS); }, \
      [](const Theirs& in) { return list_of(THEIRS); })

// Small whole numbers, 0 among them.
SampleInput small(Shape shape) { return {shape, kFloat32, SampleFill::kIndices, 4}; }
SampleInput zeros_of(Shape shape) { return {shape, kFloat32, SampleFill::kIndices, 1}; }
SampleInput whole_numbers(Shape shape, DType dtype = kInt32) { return {shape, dtype, SampleFill::kPositive, 0, false}; }
SampleInput sequence(Shape shape) { return {shape, kFloat32, SampleFill::kIota, 0, false}; }
SampleInput looked_up(Shape shape) { return {shape, kFloat32, SampleFill::kNormal, 0, false}; }
SampleInput halves(Shape shape) { return {shape, kBFloat16, SampleFill::kNormal}; }

void add_reductions(LibTorchCases& cases) {
  DTORCH_CASE("prod", ({normal({5, 7})}), prod(in[0]), in[0].prod());
  DTORCH_CASE("prod", ({normal({5, 33})}), prod(in[0], 1, true), in[0].prod(1, true));
  DTORCH_CASE("prod", ({small({4, 6})}), prod(in[0], 0), in[0].prod(0));
  DTORCH_CASE("prod", ({whole_numbers({4, 6})}), prod(in[0], 0), in[0].prod(0));
  DTORCH_CASE("prod", ({normal({})}), prod(in[0]), in[0].prod());
  DTORCH_CASE("any", ({bools({5, 33})}), any(in[0]), in[0].any());
  DTORCH_CASE("any", ({ids({5, 3}, 2)}), any(in[0], {1}, true), in[0].any(1, true));
  DTORCH_CASE("any", ({small({5, 3, 2})}), any(in[0], {0, 2}), in[0].any(at::OptionalIntArrayRef({0, 2}), false));
  DTORCH_CASE("all", ({bools({5, 33})}), all(in[0]), in[0].all());
  DTORCH_CASE("all", ({ids({5, 3}, 2)}), all(in[0], {1}, true), in[0].all(1, true));
  DTORCH_CASE("all", ({whole_numbers({5, 3}, kUInt8)}), all(in[0], {0}), in[0].all(0));
  // LibTorch's aminmax has no gradient; that of its two parts is the one of ours.
  DTORCH_PAIR_CASE("aminmax", ({ids({5, 33}, 50)}), aminmax(in[0]), in[0].aminmax());
  DTORCH_PAIR_CASE("aminmax", ({distinct({5, 33})}), aminmax(in[0], 1, true),
                   std::tuple(in[0].amin(1, true), in[0].amax(1, true)));
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0]), in[0].norm());
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0], 1, {0}), in[0].norm(1, at::IntArrayRef{0}));
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0], 2, {1}, true), in[0].norm(2, at::IntArrayRef{1}, true));
  // A count has no gradient in LibTorch; ours is 0.
  DTORCH_CASE("vector_norm", ({looked_up({5, 33})}), norm(in[0], 0, {1}), in[0].norm(0, at::IntArrayRef{1}));
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0], 0.5, {1}), in[0].norm(0.5, at::IntArrayRef{1}));
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0], 1.5), in[0].norm(1.5));
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0], 3, {1}), in[0].norm(3, at::IntArrayRef{1}));
  DTORCH_CASE("vector_norm", ({normal({5, 33})}), norm(in[0], kInf, {1}), in[0].norm(kInf, at::IntArrayRef{1}));
  DTORCH_CASE("vector_norm", ({small({5, 33})}), norm(in[0], -kInf), in[0].norm(-kInf));
  DTORCH_CASE("vector_norm", ({halves({5, 33})}), norm(in[0], 2, {1}), in[0].norm(2, at::IntArrayRef{1}));
  DTORCH_CASE("vector_norm", ({zeros_of({3, 2})}), norm(in[0], 2), in[0].norm(2));
  DTORCH_CASE("dist", ({normal({5, 33}), normal({33})}), dist(in[0], in[1], 3), in[0].dist(in[1], 3));
  DTORCH_CASE("logsumexp", ({normal({5, 33})}), logsumexp(in[0], {1}), in[0].logsumexp(1));
  DTORCH_CASE("logsumexp", ({normal({5, 3, 9})}), logsumexp(in[0], {0, 2}, true),
              in[0].logsumexp(at::IntArrayRef{0, 2}, true));
  DTORCH_CASE("nansum", ({normal({5, 33})}), nansum(sqrt(in[0]), {1}), in[0].sqrt().nansum(at::IntArrayRef{1}));
  DTORCH_CASE("nansum", ({normal({5, 33})}), nansum(in[0]), in[0].nansum());
  DTORCH_CASE("nanmean", ({normal({5, 33})}), nanmean(in[0], {1}, true), at::nanmean(in[0], at::IntArrayRef{1}, true));
  DTORCH_CASE("nanmean", ({looked_up({5, 33})}), nanmean(sqrt(in[0])), at::nanmean(in[0].sqrt()));
  DTORCH_CASE("count_nonzero", ({ids({5, 33}, 3)}), count_nonzero(in[0], {1}),
              in[0].count_nonzero(std::optional<int64_t>(1)));
  DTORCH_CASE("count_nonzero", ({small({5, 33})}), count_nonzero(in[0]), in[0].count_nonzero());
}

void add_spreads(LibTorchCases& cases) {
  DTORCH_CASE("var", ({normal({5, 33})}), var(in[0]), in[0].var());
  DTORCH_CASE("var", ({normal({5, 33})}), var(in[0], {1}, 0, true), in[0].var(at::IntArrayRef{1}, at::Scalar(0), true));
  DTORCH_CASE("var", ({halves({5, 33})}), var(in[0], {1}), in[0].var(at::IntArrayRef{1}, at::Scalar(1)));
  DTORCH_CASE("std", ({normal({5, 33})}), std(in[0]), in[0].std());
  DTORCH_CASE("std", ({normal({5, 3, 9})}), std(in[0], {0, 2}), in[0].std(at::IntArrayRef{0, 2}, at::Scalar(1)));
  DTORCH_CASE("std", ({zeros_of({3, 2})}), std(in[0], {0}), in[0].std(at::IntArrayRef{0}, at::Scalar(1)));
  DTORCH_PAIR_CASE("var_mean", ({normal({5, 33})}), var_mean(in[0], {1}, 0),
                   at::var_mean(in[0], at::IntArrayRef{1}, at::Scalar(0)));
  DTORCH_PAIR_CASE("std_mean", ({normal({5, 33})}), std_mean(in[0], {0}, 1, true),
                   at::std_mean(in[0], at::IntArrayRef{0}, at::Scalar(1), true));
}

void add_running_values(LibTorchCases& cases) {
  DTORCH_CASE("cumsum", ({normal({5, 33})}), cumsum(in[0], 1), in[0].cumsum(1));
  DTORCH_CASE("cumsum", ({normal({33, 3})}), cumsum(in[0], 0), in[0].cumsum(0));
  DTORCH_CASE("cumsum", ({whole_numbers({5, 9})}), cumsum(in[0], -1), in[0].cumsum(-1));
  DTORCH_CASE("cumsum", ({halves({5, 33})}), cumsum(in[0], 1), in[0].cumsum(1));
  DTORCH_CASE("cumsum", ({normal({})}), cumsum(in[0], 0), in[0].cumsum(0));
  DTORCH_CASE("cumprod", ({normal({5, 9})}), cumprod(in[0], 1), in[0].cumprod(1));
  DTORCH_CASE("cumprod", ({small({9, 3})}), cumprod(in[0], 0), in[0].cumprod(0));
  DTORCH_CASE("cumprod", ({whole_numbers({5, 9})}), cumprod(in[0], 1), in[0].cumprod(1));
  DTORCH_CASE("logcumsumexp", ({normal({5, 33})}), logcumsumexp(in[0], 1), in[0].logcumsumexp(1));
  DTORCH_PAIR_CASE("cummax", ({normal({5, 33})}), cummax(in[0], 1), in[0].cummax(1));
  DTORCH_PAIR_CASE("cummax", ({ids({33, 3}, 5)}), cummax(in[0], 0), in[0].cummax(0));
  DTORCH_PAIR_CASE("cummin", ({small({33, 3})}), cummin(in[0], 0), in[0].cummin(0));
  DTORCH_CASE("diff", ({normal({5, 9})}), diff(in[0]), in[0].diff());
  DTORCH_CASE("diff", ({normal({5, 9}), normal({2, 9})}), diff(in[0], 2, 0, in[1]), in[0].diff(2, 0, in[1]));
  DTORCH_CASE("diff", ({bools({5, 9})}), diff(in[0], 1, 0), in[0].diff(1, 0));
}

void add_ordering(LibTorchCases& cases) {
  DTORCH_PAIR_CASE("sort", ({normal({5, 33})}), sort(in[0]), in[0].sort());
  DTORCH_PAIR_CASE("sort", ({ids({33, 3}, 5)}), sort(in[0], 0, true, true),
                   in[0].sort(/*stable=*/true, 0, /*descending=*/true));
  DTORCH_PAIR_CASE("sort", ({looked_up({5, 33})}), sort(sqrt(in[0]), 1, true),
                   in[0].sqrt().sort(/*stable=*/true, 1, /*descending=*/true));
  DTORCH_CASE("argsort", ({ids({5, 33}, 7)}), argsort(in[0], -1, true),
              in[0].argsort(/*stable=*/true, -1, /*descending=*/true));
  DTORCH_CASE("msort", ({normal({9, 5})}), msort(in[0]), in[0].msort());
  DTORCH_PAIR_CASE("topk", ({distinct({5, 33})}), topk(in[0], 4), in[0].topk(4));
  DTORCH_PAIR_CASE("topk", ({distinct({33, 3})}), topk(in[0], 5, 0, false), in[0].topk(5, 0, false));
  DTORCH_PAIR_CASE("topk", ({distinct({3, 300})}), topk(in[0], 1), in[0].topk(1));
  DTORCH_PAIR_CASE("topk", ({whole_numbers({9})}), topk(in[0], 0), in[0].topk(0));
  DTORCH_PAIR_CASE("kthvalue", ({distinct({5, 33})}), kthvalue(in[0], 3), in[0].kthvalue(3));
  DTORCH_PAIR_CASE("kthvalue", ({distinct({9, 3})}), kthvalue(in[0], 9, 0, true), in[0].kthvalue(9, 0, true));
}

void add_counting(LibTorchCases& cases) {
  DTORCH_CASE("searchsorted", ({sequence({9}), looked_up({5, 3})}), searchsorted(in[0], in[1]),
              at::searchsorted(in[0], in[1]));
  DTORCH_CASE("searchsorted", ({sequence({3, 5}), sequence({3, 7})}), searchsorted(in[0], in[1], true, true),
              at::searchsorted(in[0], in[1], true, true));
  DTORCH_CASE("bucketize", ({ids({5, 3}, 9), ids({1}, 9)}), bucketize(in[0], in[1], false, true),
              at::bucketize(in[0], in[1], false, true));
  DTORCH_CASE("bincount", ({ids({33}, 7)}), bincount(in[0]), in[0].bincount());
  DTORCH_CASE("bincount", ({ids({33}, 7), looked_up({33})}), bincount(in[0], in[1], 12), in[0].bincount(in[1], 12));
  DTORCH_CASE("histc", ({looked_up({5, 33})}), histc(in[0], 7), in[0].histc(7));
  DTORCH_CASE("histc", ({looked_up({5, 33})}), histc(in[0], 4, -1, 0.5), in[0].histc(4, -1, 0.5));
}

}  // namespace

void add_reduction_cases(LibTorchCases& cases) {
  add_reductions(cases);
  add_spreads(cases);
  add_running_values(cases);
  add_ordering(cases);
  add_counting(cases);
}

}  // namespace dtorch::test
