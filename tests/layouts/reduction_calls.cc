// Reductions over any dims, of every dtype, of nothing and of one element; running values and positions.
#include <limits>

#include "tests/layouts/calls.h"

namespace dtorch::test {

std::vector<Sample> reduction_calls() {
  return {
      call("sums", {f64({5, 3, 4})},
           [](const In& in) {
             return Out{sum(in[0]), sum(in[0], {0, 2}), sum(in[0], {-1}, true), sum(in[0], {0, 1, 2}, true)};
           }),
      call("sums of integers", {whole({5, 3}, kInt32)},
           [](const In& in) {
             return Out{sum(in[0]), sum(in[0], {0}), mean(to(in[0], kFloat32))};
           }),
      call("sums of bool", {mask({5, 3})},
           [](const In& in) {
             return Out{sum(in[0]), sum(in[0], {1})};
           }),
      call("sums of small integers", {whole({5, 40}, kInt8)},
           [](const In& in) {
             return Out{sum(in[0]), prod(in[0] + 1, 1)};
           }),
      call(
          "a sum with a dtype", {f32({5, 3})}, [](const In& in) { return Out{sum(in[0], {0}, false, kFloat64)}; },
          1e-5),
      call("sums of halves", {of({9, 3}, kBFloat16)},
           [](const In& in) {
             return Out{sum(in[0]), mean(in[0], {0}), norm(in[0])};
           }),
      call("sums of nothing", {f64({0, 3})},
           [](const In& in) {
             return Out{sum(in[0]), sum(in[0], {0}), prod(in[0]), any(in[0]), all(in[0])};
           }),
      call("means of few rows", {f64({1, 4})},
           [](const In& in) {
             return Out{mean(in[0]), mean(in[0], {0}), mean(in[0], {1})};
           }),
      call("means of uneven rows", {f64({7, 3})},
           [](const In& in) {
             return Out{mean(in[0]), mean(in[0], {0}), mean(in[0], {0}, true)};
           }),
      call(
          "variances", {f64({7, 3})},
          [](const In& in) {
            return Out{var(in[0]), var(in[0], {0}, 0), std(in[0], {1}, 1, true), var(in[0], {0}, 2.5)};
          },
          1e-10),
      call(
          "variances of one", {f64({1, 3})},
          [](const In& in) {
            return Out{var(in[0], {0}, 0), std(in[0], {1})};
          },
          1e-10),
      call(
          "var_mean", {f64({7, 3})},
          [](const In& in) {
            const auto [v, m] = var_mean(in[0], {0});
            const auto [s, n] = std_mean(in[0]);
            return Out{v, m, s, n};
          },
          1e-10),
      call(
          "norms", {f64({7, 3})},
          [](const In& in) {
            return Out{norm(in[0]), norm(in[0], 1, {0}), norm(in[0], 3, {1}, true), vector_norm(in[0], 0.5)};
          },
          1e-10),
      call("extreme norms", {distinct({7, 3})},
           [](const In& in) {
             constexpr double kInfinity = std::numeric_limits<double>::infinity();
             return Out{norm(in[0], kInfinity), norm(in[0], -kInfinity, {0}), norm(in[0], 0, {1}),
                        norm(in[0], kInfinity, {0, 1}, true)};
           }),
      call(
          "dist", {f64({7, 3}), f64({3})},
          [](const In& in) {
            return Out{dist(in[0], in[1]), dist(in[0], in[1], 1)};
          },
          1e-10),
      call(
          "products", {f64({5, 3})},
          [](const In& in) {
            return Out{prod(in[0]), prod(in[0], 0), prod(in[0], 1, true)};
          },
          1e-11),
      call(
          "a product with a zero", {f64({5, 3})},
          [](const In& in) {
            return Out{prod(relu(in[0]), 0), prod(relu(in[0]))};
          },
          1e-11),
      call("products of integers", {whole({5, 3})},
           [](const In& in) {
             return Out{prod(in[0]), prod(in[0], 0)};
           }),
      call(
          "logsumexp", {f64({5, 3, 2})},
          [](const In& in) {
            return Out{logsumexp(in[0], {0}), logsumexp(in[0], {1, 2}, true), logsumexp(in[0] * 300, {0})};
          },
          1e-10),
      call(
          "logsumexp of masked rows", {f64({5, 3}), mask({5, 3})},
          [](const In& in) {
            return Out{exp(logsumexp(masked_fill(in[0], in[1], -std::numeric_limits<double>::infinity()), {0}))};
          },
          1e-10),
      call("any and all", {mask({5, 3}), whole({5, 3})},
           [](const In& in) {
             return Out{any(in[0]), all(in[0], {0}),      any(in[1], {1}, true),
                        all(in[1]), count_nonzero(in[1]), count_nonzero(in[0], {0})};
           }),
      call("extremes", {distinct({5, 3, 4})},
           [](const In& in) {
             return Out{max(in[0]),          min(in[0]),
                        amax(in[0], {0, 2}), amin(in[0], {1}, true),
                        max(in[0], 0).first, min(in[0], -1, true).first};
           }),
      call("positions", {distinct({5, 3, 4})},
           [](const In& in) {
             return Out{max(in[0], 0).second, argmax(in[0]), argmin(in[0], 1), argmax(in[0], 2, true),
                        min(in[0], 1).second};
           }),
      call("ties", {whole({9, 4})},
           [](const In& in) {
             const Tensor x = bitwise_and(in[0], 1);
             return Out{argmax(x), argmin(x, 0), max(x, 0).second, min(x, 1).second, argmax(x, 1)};
           }),
      call("gradients of ties", {whole({6, 3}), f64({6, 3})},
           [](const In& in) {
             const Tensor x = to(bitwise_and(in[0], 1), kFloat64) + in[1] * 0;
             return Out{max(x), amax(x, {0}), max(x, 0).first, min(x, 1).first};
           }),
      call("extremes with NaN", {f64({6, 3})},
           [](const In& in) {
             const Tensor x = sqrt(in[0]).detach();
             return Out{max(x),          argmax(x), max(x, 0).second, amin(x, {1}),
                        min(x, 0).first, nansum(x), nanmean(x, {0}),  nansum(x, {1})};
           }),
      call("extremes of integers", {whole({7, 2}, kInt32)},
           [](const In& in) {
             return Out{max(in[0]), amin(in[0], {0}), aminmax(in[0]).first, aminmax(in[0], 0).second};
           }),
      call("extremes of bool", {mask({7, 2})},
           [](const In& in) {
             return Out{any(in[0], {0}), all(in[0], {1})};
           }),
      call("count of pending", {whole({3, 5})},
           [](const In& in) {
             return Out{count_nonzero(in[0], {0, 1})};
           }),
      call("trace", {f64({5, 7})}, [](const In& in) { return Out{trace(in[0])}; }),
      call("mean of a mean", {f64({7, 5})},
           [](const In& in) {
             return Out{mean(mean(in[0], {1})), sum(square(in[0] - mean(in[0], {0}, true)))};
           }),
      call("one value used twice", {f64({7, 5})},
           [](const In& in) {
             const Tensor m = mean(in[0]);
             return Out{m * m, in[0] * m, in[0] - m};
           }),
      call("median by kthvalue", {distinct({7, 3})},
           [](const In& in) {
             return Out{kthvalue(in[0], 4, 0).first, kthvalue(in[0], 2, 1).second};
           }),
      call("histc", {fixed({17})},
           [](const In& in) {
             return Out{histc(in[0], 5, -1, 1), histc(in[0], 4)};
           }),
      call("bincount", {ids({17}, 6), fixed({17})},
           [](const In& in) {
             return Out{bincount(in[0]), bincount(in[0], in[1], 9)};
           }),
  };
}

std::vector<Sample> running_calls() {
  return {
      call("running sums", {f64({7, 5})},
           [](const In& in) {
             return Out{cumsum(in[0], 0), cumsum(in[0], -1), cumsum(cumsum(in[0], 0), 1)};
           }),
      call("running sums of integers", {whole({7, 5}, kInt32), mask({7, 5})},
           [](const In& in) {
             return Out{cumsum(in[0], 0), cumsum(in[1], 1), cumprod(in[0], 0)};
           }),
      call("running sums of nothing", {f64({0, 3})},
           [](const In& in) {
             return Out{cumsum(in[0], 0), cumsum(in[0], 1)};
           }),
      call("running sums of a scalar", {f64({})}, [](const In& in) { return Out{cumsum(in[0], 0)}; }),
      call(
          "running sums of halves", {of({9, 2}, kBFloat16)},
          [](const In& in) { return Out{cumsum(in[0], 0, kFloat32)}; }, 0.02),
      call(
          "running products", {f64({6, 3})},
          [](const In& in) {
            return Out{cumprod(in[0], 0), cumprod(in[0], 1)};
          },
          1e-10),
      call(
          "running products with a zero", {f64({6, 3})}, [](const In& in) { return Out{cumprod(relu(in[0]), 0)}; },
          1e-10),
      call("running extremes", {distinct({7, 3})},
           [](const In& in) {
             return Out{cummax(in[0], 0).first, cummax(in[0], 0).second, cummin(in[0], 1).first,
                        cummin(in[0], 0).second};
           }),
      call("running extremes of ties", {whole({9, 2})},
           [](const In& in) {
             const Tensor x = bitwise_and(in[0], 1);
             return Out{cummax(x, 0).second, cummin(x, 0).second};
           }),
      call(
          "logcumsumexp", {f64({7, 3})},
          [](const In& in) {
            return Out{logcumsumexp(in[0], 0), logcumsumexp(in[0] * 200, 1)};
          },
          1e-10),
      call("diff", {f64({7, 3}), f64({1, 3})},
           [](const In& in) {
             return Out{diff(in[0], 1, 0), diff(in[0], 2, 0), diff(in[0], 1, 0, in[1]), diff(in[0], 1, 0, {}, in[1]),
                        diff(in[0], 3, 1)};
           }),
      call("triangles", {f64({7, 5})},
           [](const In& in) {
             return Out{tril(in[0]), triu(in[0], 2), tril(in[0], -3), triu(in[0], -9), tril(in[0], 9)};
           }),
      call("triangles of batches", {f64({3, 4, 5})},
           [](const In& in) {
             return Out{tril(in[0]), triu(in[0], 1)};
           }),
      call("diagonals", {f64({5, 7})},
           [](const In& in) {
             return Out{diagonal(in[0]), diagonal(in[0], 2), diagonal(in[0], -3), diagonal(in[0], 7), diag(in[0])};
           }),
      call("diagonals of batches", {f64({3, 4, 5})},
           [](const In& in) {
             return Out{diagonal(in[0], 1, 1, 2), diagonal(in[0], 0, 2, 0), diag_embed(in[0], 1),
                        diag_embed(in[0], 0, 0, 2)};
           }),
      call("a causal mask from positions", {f64({7, 5})},
           [](const In& in) {
             const DeviceMesh mesh = in[0].mesh();
             const Tensor rows = arange(7, {.mesh = mesh}), columns = arange(5, {.mesh = mesh});
             return Out{masked_fill(in[0], unsqueeze(columns, 0) > unsqueeze(rows, 1), -7)};
           }),
      call(
          "rotary", {f64({2, 3, 5, 4})},
          [](const In& in) {
            return Out{rotary_embedding(in[0]), rotary_embedding(in[0], {.theta = 100, .first_position = 11})};
          },
          1e-11),
      call(
          "rotary at places", {f64({3, 2, 4, 4}), ids({3}, 9)},
          [](const In& in) { return Out{rotary_at(in[0], in[1])}; }, 1e-11),
      call("positions of what isn't zero", {whole({7, 3}), mask({5, 2})},
           [](const In& in) {
             return Out{nonzero(in[0]), argwhere(in[1])};
           }),
      call("masked_select", {f64({7, 3}), mask({7, 3})}, [](const In& in) { return Out{masked_select(in[0], in[1])}; }),
      call("masked_scatter", {f64({5, 3}), mask({5, 3}), f64({15})},
           [](const In& in) { return Out{masked_scatter(in[0], in[1], in[2])}; }),
      call("sorted", {distinct({9, 3})},
           [](const In& in) {
             return Out{sort(in[0], 0).first, sort(in[0], 0, true).second, argsort(in[0], 1), msort(in[0])};
           }),
      call("sorted ties", {whole({9, 3})},
           [](const In& in) {
             const Tensor x = bitwise_and(in[0], 1);
             return Out{sort(x, 0).second, sort(x, 0, true).second, argsort(x, 1)};
           }),
      call("sorted NaN", {f64({9, 2})},
           [](const In& in) {
             const Tensor x = log(in[0]).detach();
             return Out{sort(x, 0).first, sort(x, 0, true).second, topk(x, 3, 0).first};
           }),
      call("the largest", {distinct({9, 3})},
           [](const In& in) {
             return Out{topk(in[0], 4, 0).first, topk(in[0], 4, 0).second, topk(in[0], 2, 1, false).second,
                        topk(in[0], 0, 0).first, topk(in[0], 9, 0).first};
           }),
      call("looked up", {distinct({9}), fixed({4, 3})},
           [](const In& in) {
             const Tensor sorted = sort(in[0], 0).first.detach();
             return Out{searchsorted(sorted, in[1]), bucketize(in[1], sorted, true, true)};
           }),
      call("isin and one_hot", {ids({5, 2}, 4), ids({3}, 4)},
           [](const In& in) {
             return Out{isin(in[0], in[1]), isin(in[0], in[1], true), one_hot(in[0], 5), one_hot(in[1])};
           }),
      call("unfold of windows", {f64({9, 2})}, [](const In& in) { return Out{unfold(in[0], 0, 3, 2)}; }),
  };
}

}  // namespace dtorch::test
