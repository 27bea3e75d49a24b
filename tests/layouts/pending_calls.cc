// Values that are pending because of the operator before: a product over a split dim, sum_pending, a gathered
// embedding. Whoever reads them must see their sum, or refuse.
#include "tests/layouts/calls.h"

namespace dtorch::test {
namespace {

Tensor product(const In& in) { return matmul(in[0], in[1]); }
std::vector<SampleInput> factors(std::vector<SampleInput> more = {}) {
  std::vector<SampleInput> inputs = {f64({4, 5}), f64({5, 6})};
  inputs.insert(inputs.end(), more.begin(), more.end());
  return inputs;
}
Sample of_product(std::string name, std::function<Out(const Tensor&)> use) {
  return call(std::move(name), factors(), [use = std::move(use)](const In& in) { return use(product(in)); });
}

}  // namespace

std::vector<Sample> pending_calls() {
  return {
      of_product("plus a number", [](const Tensor& p) { return Out{p + 1.0}; }),
      of_product("times a number",
                 [](const Tensor& p) {
                   return Out{p * 2.0, -p, p / 3, p * 0};
                 }),
      of_product("a number divided", [](const Tensor& p) { return Out{1.0 / p}; }),
      of_product("square", [](const Tensor& p) { return Out{p * p}; }),
      of_product("abs and sign", [](const Tensor& p) { return Out{abs(p)}; }),
      of_product("relu", [](const Tensor& p) { return Out{relu(p)}; }),
      of_product("compared", [](const Tensor& p) { return Out{p > 0}; }),
      of_product("cast to integers", [](const Tensor& p) { return Out{to(p, kInt64)}; }),
      call(
          "cast to float32", factors(), [](const In& in) { return Out{to(product(in), kFloat32)}; }, 1e-5),
      of_product("softmax", [](const Tensor& p) { return Out{softmax(p, -1)}; }),
      of_product("sum and mean",
                 [](const Tensor& p) {
                   return Out{sum(p), mean(p), sum(p, {0}), mean(p, {1}, true), sum_pending(p, {1})};
                 }),
      of_product("extremes",
                 [](const Tensor& p) {
                   return Out{max(p), min(p), amax(p, {1}), max(p, 0).first, max(p, 0).second, argmin(p)};
                 }),
      of_product("prod", [](const Tensor& p) { return Out{prod(p, 1)}; }),
      of_product("any and all",
                 [](const Tensor& p) {
                   return Out{any(p), all(p, {0}), count_nonzero(p)};
                 }),
      of_product("var and norm",
                 [](const Tensor& p) {
                   return Out{var(p), std(p, {1}), norm(p), norm(p, 1, {0})};
                 }),
      of_product("infinite norm",
                 [](const Tensor& p) { return Out{vector_norm(p, std::numeric_limits<double>::infinity())}; }),
      of_product("logsumexp", [](const Tensor& p) { return Out{logsumexp(p, {1})}; }),
      of_product("cumsum",
                 [](const Tensor& p) {
                   return Out{cumsum(p, 0), cumsum(p, 1)};
                 }),
      of_product("cumprod", [](const Tensor& p) { return Out{cumprod(p, 1)}; }),
      of_product("cummax",
                 [](const Tensor& p) {
                   return Out{cummax(p, 1).first, cummax(p, 1).second};
                 }),
      of_product("sort",
                 [](const Tensor& p) {
                   return Out{sort(p, 1).first, sort(p, 1).second};
                 }),
      of_product("topk",
                 [](const Tensor& p) {
                   return Out{topk(p, 2, 1).first, topk(p, 2, 0).second};
                 }),
      of_product("select and slices",
                 [](const Tensor& p) {
                   return Out{select(p, 0, 2), slice(p, 1, 1, 6, 2), narrow(p, 0, 1, 2)};
                 }),
      of_product("cat with itself",
                 [](const Tensor& p) {
                   return Out{cat({p, p * 2}, 0), stack({p, p}, 1)};
                 }),
      call("cat with a whole tensor", factors({f64({4, 6})}),
           [](const In& in) {
             return Out{cat({product(in), in[2]}, 0), stack({in[2], product(in)})};
           }),
      of_product("padded with ones",
                 [](const Tensor& p) {
                   return Out{pad(p, {1, 2}, "constant", 1)};
                 }),
      of_product("padded with zeros",
                 [](const Tensor& p) {
                   return Out{pad(p, {1, 2, 0, 1})};
                 }),
      of_product("roll and flip",
                 [](const Tensor& p) {
                   return Out{roll(p, {2}, {1}), flip(p, {0}), transpose(p, 0, 1)};
                 }),
      of_product("triangle and diagonal",
                 [](const Tensor& p) {
                   return Out{tril(p, 1), triu(p), diagonal(p, 1)};
                 }),
      of_product("repeat",
                 [](const Tensor& p) {
                   return Out{repeat(p, {2, 1}), repeat_interleave(p, 2, 1)};
                 }),
      of_product("views",
                 [](const Tensor& p) {
                   return Out{reshape(p, {24}), unsqueeze(p, 0), expand(unsqueeze(p, 0), {2, -1, -1})};
                 }),
      of_product("index_select",
                 [](const Tensor& p) {
                   const Tensor at = arange(0, 3, {.mesh = p.mesh()});
                   return Out{index_select(p, 1, at), gather(p, 0, expand(unsqueeze(at, 0), {4, 3}))};
                 }),
      call("masked", factors({mask({4, 6})}), [](const In& in) { return Out{masked_fill(product(in), in[2], 0)}; }),
      call("masked with a number", factors({mask({4, 6})}),
           [](const In& in) { return Out{masked_fill(product(in), in[2], 3)}; }),
      call("where", factors({mask({4, 6}), f64({4, 6})}),
           [](const In& in) { return Out{where(in[2], product(in), in[3])}; }),
      call("where and a number", factors({mask({4, 6})}),
           [](const In& in) { return Out{where(in[2], product(in), 1.0)}; }),
      call("lerp", factors({f64({4, 6})}), [](const In& in) { return Out{lerp(product(in), in[2], 0.25)}; }),
      call("added to what is whole", factors({f64({6})}),
           [](const In& in) {
             return Out{product(in) + in[2], in[2] - product(in)};
           }),
      call("times what is whole", factors({f64({6})}), [](const In& in) { return Out{product(in) * in[2]}; }),
      call("addmm", factors({f64({4, 6})}), [](const In& in) { return Out{addmm(in[2], in[0], in[1], 2, 0.5)}; }),
      call("a chain of products", factors({f64({6, 3})}), [](const In& in) { return Out{matmul(product(in), in[2])}; }),
      call("linear with a bias", {f64({4, 5}), f64({6, 5}), f64({6})},
           [](const In& in) { return Out{linear(in[0], in[1], in[2])}; }),
      call(
          "layer_norm", factors({f64({6}), f64({6})}),
          [](const In& in) { return Out{layer_norm(product(in), {6}, in[2], in[3])}; }, 1e-10),
      call(
          "a pending weight of a norm", {f64({4, 6}), f64({3, 6})},
          [](const In& in) { return Out{rms_norm(in[0], sum_pending(in[1], {0}))}; }, 1e-10),
      call(
          "cross_entropy", factors({ids({4}, 6)}), [](const In& in) { return Out{cross_entropy(product(in), in[2])}; },
          1e-10),
      call("mse of two", factors({f64({4, 6})}), [](const In& in) { return Out{mse_loss(product(in), in[2])}; }),
      call("an embedding's table", {ids({5}, 7), f64({3, 7, 4})},
           [](const In& in) { return Out{embedding(in[0], sum_pending(in[1], {0}))}; }),
      call("scattered", factors({ids({4, 6}, 4), f64({4, 6})}),
           [](const In& in) {
             return Out{scatter_add(in[3], 0, in[2], product(in)), scatter_add(product(in), 0, in[2], in[3])};
           }),
      call("put by index", factors({ids({3}, 4), f64({3, 6})}),
           [](const In& in) {
             return Out{index_put(product(in), {in[2]}, in[3], true), index_add(product(in), 0, in[2], in[3])};
           }),
      call("put into slices", factors({f64({2, 6})}),
           [](const In& in) { return Out{slice_scatter(product(in), in[2], 0, 1, 3)}; }),
      call(
          "convolution over channels", {f64({2, 3, 5, 4}), f64({4, 3, 3, 3}), f64({4})},
          [](const In& in) { return Out{conv2d(in[0], in[1], in[2], {.padding = 1})}; }, 1e-10),
      call(
          "pooled", {f64({2, 3, 6}), f64({5, 3, 1})},
          [](const In& in) { return Out{avg_pool1d(conv1d(in[0], in[1]), 2)}; }, 1e-10),
      call(
          "max pooled", {f64({2, 3, 6}), f64({5, 3, 1})},
          [](const In& in) { return Out{max_pool1d(conv1d(in[0], in[1]), 2)}; }, 1e-10),
      call(
          "batch_norm", {f64({4, 3, 5}), f64({4, 3, 1})},
          [](const In& in) { return Out{batch_norm(conv1d(in[0], in[1]), {}, {}, {}, {}, {.training = true}).y}; },
          1e-9),
      call(
          "group_norm", {f64({4, 3, 5}), f64({4, 3, 1})},
          [](const In& in) { return Out{group_norm(conv1d(in[0], in[1]), 2)}; }, 1e-9),
      call(
          "interpolated", {f64({2, 3, 4}), f64({4, 3, 1})},
          [](const In& in) { return Out{interpolate(conv1d(in[0], in[1]), {.size = 7, .mode = "linear"})}; }, 1e-10),
      call(
          "attention's values", {f64({1, 2, 3, 4}), f64({1, 2, 5, 4}), f64({3, 1, 2, 5, 4})},
          [](const In& in) { return Out{scaled_dot_product_attention(in[0], in[1], sum_pending(in[2], {0}))}; }, 1e-10),
      call(
          "attention's queries", {f64({3, 1, 2, 3, 4}), f64({1, 2, 5, 4}), f64({1, 2, 5, 4})},
          [](const In& in) { return Out{scaled_dot_product_attention(sum_pending(in[0], {0}), in[1], in[2])}; }, 1e-10),
      call("dropped out", factors(), [](const In& in) { return Out{dropout(product(in), 0.5)}; }),
      call("extremes of integers", {whole({3, 4, 5})},
           [](const In& in) {
             const Tensor p = sum_pending(in[0], {0});
             return Out{max(p),
                        argmax(p),
                        p + p,
                        p * 2,
                        sum(p),
                        cumsum(p, 1),
                        sort(p, 0).first,
                        p.redistribute(Placements(p.mesh().num_axes(), Replicate()))};
           }),
      call("any of pending counts", {whole({3, 4}, kInt32)},
           [](const In& in) { return Out{any(sum_pending(in[0], {0}))}; }),
      call("a mean that stays pending", {f64({5, 4, 3})},
           [](const In& in) {
             return Out{mean(sum_pending(in[0], {1}), {0}), square(mean(in[0], {0, 1}))};
           }),
  };
}

}  // namespace dtorch::test
