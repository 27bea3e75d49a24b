// Cases of libtorch_cases_aten.h.
#include <ATen/TensorOperators.h>
#include <ATen/ops/index.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/take_along_dim.h>
#include <ATen/ops/tril_indices.h>
#include <ATen/ops/triu_indices.h>

#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {
namespace {

using List = c10::List<std::optional<at::Tensor>>;

List list_of(std::initializer_list<std::optional<at::Tensor>> items) {
  List list;
  for (const auto& item : items) list.push_back(item);
  return list;
}

// Different integers below the number of elements.
SampleInput permuted(int64_t count) { return {{count}, kInt64, SampleFill::kDistinct, 0, false}; }

void add_scatters(LibTorchCases& cases) {
  DTORCH_CASE("scatter", ({normal({5, 33}), ids({3, 33}, 5), normal({3, 33})}), scatter(in[0], 0, in[1], in[2]),
              in[0].scatter(0, in[1], in[2]));
  DTORCH_CASE("scatter", ({normal({5, 33}), ids({4, 7}, 33)}), scatter(in[0], -1, in[1], 2.5),
              in[0].scatter(-1, in[1], 2.5));
  DTORCH_CASE("scatter_add", ({normal({5, 33}), ids({7, 33}, 5), normal({7, 33})}), scatter_add(in[0], 0, in[1], in[2]),
              in[0].scatter_add(0, in[1], in[2]));
  for (const char* reduce : {"sum", "mean", "amax", "amin"}) {
    for (bool include_self : {true, false}) {
      cases.add(
          "scatter_reduce", {normal({5, 33}), ids({4, 21}, 33), normal({4, 21})},
          [=](const Ours& in) { return Ours{scatter_reduce(in[0], 1, in[1], in[2], reduce, include_self)}; },
          [=](const Theirs& in) { return Theirs{in[0].scatter_reduce(1, in[1], in[2], reduce, include_self)}; });
    }
  }
  DTORCH_CASE("scatter_reduce", ({normal({5, 33}), ids({7, 33}, 5), normal({7, 33})}),
              scatter_reduce(in[0].detach(), 0, in[1], in[2].detach(), "prod"),
              in[0].detach().scatter_reduce(0, in[1], in[2].detach(), "prod"));
  DTORCH_CASE("masked_scatter", ({normal({5, 33}), bools({5, 1}), normal({200})}), masked_scatter(in[0], in[1], in[2]),
              in[0].masked_scatter(in[1], in[2]));
  DTORCH_CASE("slice_scatter", ({normal({5, 33}), normal({5, 6})}), slice_scatter(in[0], in[1], 1, 2, 20, 3),
              in[0].slice_scatter(in[1], 1, 2, 20, 3));
  DTORCH_CASE("select_scatter", ({normal({5, 33}), normal({33})}), select_scatter(in[0], in[1], 0, -2),
              in[0].select_scatter(in[1], 0, -2));
  DTORCH_CASE("diagonal_scatter", ({normal({5, 3, 7}), normal({3, 4})}), diagonal_scatter(in[0], in[1], -1, 0, 2),
              in[0].diagonal_scatter(in[1], -1, 0, 2));
  DTORCH_CASE("diagonal_scatter", ({normal({5, 3, 7}), normal({5, 3})}), diagonal_scatter(in[0], in[1], -1, -1, 1),
              in[0].diagonal_scatter(in[1], -1, -1, 1));
}

void add_picks(LibTorchCases& cases) {
  DTORCH_CASE("gather", ({normal({5, 33}), ids({7, 30}, 5)}), gather(in[0], 0, in[1]), in[0].gather(0, in[1]));
  DTORCH_CASE("take_along_dim", ({normal({5, 33}), ids({1, 7}, 33)}), take_along_dim(in[0], in[1], 1),
              at::take_along_dim(in[0], in[1], 1));
  DTORCH_CASE("take_along_dim", ({normal({5, 3}), ids({2, 7}, 15)}), take_along_dim(in[0], in[1]),
              at::take_along_dim(in[0], in[1]));
  DTORCH_CASE("index", ({normal({5, 7, 3}), ids({4, 1}, 5), ids({6}, 7)}), index(in[0], {in[1], in[2]}),
              at::index(in[0], list_of({in[1], in[2]})));
  DTORCH_CASE("index", ({normal({5, 7, 3}), ids({4}, 5), ids({4}, 3)}), index(in[0], {in[1], std::nullopt, in[2] - 3}),
              at::index(in[0], list_of({in[1], std::nullopt, in[2] - 3})));
  DTORCH_CASE("index", ({normal({5, 7, 3}), bools({7}), ids({1}, 3)}), index(in[0], {std::nullopt, in[1], in[2]}),
              at::index(in[0], list_of({std::nullopt, in[1], in[2]})));
  DTORCH_CASE("index_select", ({normal({5, 33}), ids({40}, 33)}), index_select(in[0], 1, in[1]),
              in[0].index_select(1, in[1]));
  DTORCH_CASE("take", ({normal({5, 33}), ids({40, 2}, 165)}), take(in[0], in[1] - 165), in[0].take(in[1] - 165));
  DTORCH_CASE("nonzero", ({bools({5, 7})}), nonzero(in[0]), in[0].nonzero());
  DTORCH_CASE("argwhere", ({ids({5, 7}, 2)}), argwhere(in[0]), in[0].argwhere());
  DTORCH_CASE("masked_select", ({normal({5, 7}), bools({7})}), masked_select(in[0], in[1]), in[0].masked_select(in[1]));
  DTORCH_CASE("one_hot", ({ids({5, 7}, 4)}), one_hot(in[0], 4), at::one_hot(in[0], 4));
  DTORCH_CASE("one_hot", ({ids({5, 7}, 4)}), one_hot(in[0]), at::one_hot(in[0]));
  DTORCH_CASE("isin", ({ids({5, 7}, 9), ids({4}, 9)}), isin(in[0], in[1]), at::isin(in[0], in[1]));
  DTORCH_CASE("isin", ({ids({5, 7}, 9), ids({4}, 9)}), isin(in[0], in[1], true), at::isin(in[0], in[1], false, true));
  cases.add(
      "tril_indices", {}, [](const Ours&) { return Ours{tril_indices(5, 7, -1)}; },
      [](const Theirs&) { return Theirs{at::tril_indices(5, 7, -1)}; });
  cases.add(
      "triu_indices", {}, [](const Ours&) { return Ours{triu_indices(5, 3, 1)}; },
      [](const Theirs&) { return Theirs{at::triu_indices(5, 3, 1)}; });
}

void add_puts(LibTorchCases& cases) {
  DTORCH_CASE("index_put", ({normal({33, 5}), permuted(33), normal({33, 5})}), index_put(in[0], {in[1]}, in[2]),
              in[0].index_put(list_of({in[1]}), in[2]));
  DTORCH_CASE("index_put", ({normal({5, 7, 3}), ids({2, 20}, 5), ids({20}, 3), normal({20, 7})}),
              index_put(in[0], {in[1], std::nullopt, in[2]}, in[3], true),
              in[0].index_put(list_of({in[1], std::nullopt, in[2]}), in[3], true));
  DTORCH_CASE("index_put", ({normal({5, 7}), bools({5}), normal({})}), index_put(in[0], {in[1]}, in[2]),
              in[0].index_put(list_of({in[1]}), in[2]));
  DTORCH_CASE("index_put", ({normal({5, 7}), bools({5, 7}), normal({1})}), index_put(in[0], {in[1]}, in[2]),
              in[0].index_put(list_of({in[1]}), in[2]));
  DTORCH_CASE("index_add", ({normal({5, 33}), ids({40}, 33), normal({5, 40})}), index_add(in[0], 1, in[1], in[2]),
              in[0].index_add(1, in[1], in[2]));
  // LibTorch may round alpha * source and the sum at once.
  DTORCH_CASE_WITHIN(1e-6, "index_add", ({normal({33, 5}), ids({40}, 33), normal({40, 5})}),
                     index_add(in[0], 0, in[1], in[2], 0.3), in[0].index_add(0, in[1], in[2], 0.3));
  DTORCH_CASE("index_copy", ({normal({5, 33}), permuted(33), normal({5, 33})}), index_copy(in[0], 1, in[1], in[2]),
              in[0].index_copy(1, in[1], in[2]));
  DTORCH_CASE("index_fill", ({normal({5, 33}), ids({7}, 33)}), index_fill(in[0], 1, in[1], -2.5),
              in[0].index_fill(1, in[1], -2.5));
  DTORCH_CASE("put", ({normal({5, 7}), permuted(35), normal({35})}), put(in[0], in[1], in[2]), in[0].put(in[1], in[2]));
  DTORCH_CASE("put", ({normal({5, 7}), ids({20}, 35), normal({20})}), put(in[0], in[1], in[2], true),
              in[0].put(in[1], in[2], true));
}

}  // namespace

void add_index_cases(LibTorchCases& cases) {
  add_scatters(cases);
  add_picks(cases);
  add_puts(cases);
}

}  // namespace dtorch::test
