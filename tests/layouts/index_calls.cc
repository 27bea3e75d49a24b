// Picking and placing by index: repeated, negative and broadcast positions; every dim.
#include "tests/layouts/calls.h"

namespace dtorch::test {

std::vector<Sample> index_calls() {
  return {
      call("gathered rows", {f64({7, 4}), ids({5, 3}, 7)}, [](const In& in) { return Out{gather(in[0], 0, in[1])}; }),
      call("gathered columns", {f64({5, 4}), ids({3, 9}, 4)},
           [](const In& in) { return Out{gather(in[0], 1, in[1])}; }),
      call("gathered by int32", {f64({7, 4}), ids({5, 3}, 7)},
           [](const In& in) {
             return Out{gather(in[0], 0, to(in[1], kInt32)), index_select(in[0], 0, to(select(in[1], 1, 0), kInt32))};
           }),
      call("take_along_dim", {f64({7, 4}), ids({2, 1}, 7)},
           [](const In& in) {
             return Out{take_along_dim(in[0], in[1], 0), take_along_dim(in[0], in[1])};
           }),
      call("index_select", {f64({7, 4}), ids({9}, 4)},
           [](const In& in) {
             return Out{index_select(in[0], 0, in[1]), index_select(in[0], 1, in[1])};
           }),
      call("index_select of nothing", {f64({7, 4}), ids({0}, 4)},
           [](const In& in) { return Out{index_select(in[0], 0, in[1])}; }),
      call("indexed by one tensor", {f64({7, 4}), ids({2, 3}, 7)},
           [](const In& in) {
             return Out{index(in[0], {in[1]}), index(in[0], {in[1] - 7})};
           }),
      call("indexed by two", {f64({7, 4, 3}), ids({5, 1}, 4), ids({2}, 3)},
           [](const In& in) {
             return Out{index(in[0], {in[1], in[2]}), index(in[0], {std::nullopt, in[1], in[2]}),
                        index(in[0], {in[1], std::nullopt, in[2]})};
           }),
      call("indexed by bool", {f64({5, 4}), mask({5})}, [](const In& in) { return Out{index(in[0], {in[1]})}; }),
      call("indexed by bool of the value", {f64({5, 4})},
           [](const In& in) {
             return Out{index(in[0], {in[0] > 0}), masked_select(in[0], in[0] < 0.5)};
           }),
      call("taken from the flattened", {f64({5, 4}), ids({3, 2}, 20)},
           [](const In& in) {
             return Out{take(in[0], in[1]), take(in[0], in[1] - 20)};
           }),
      call("scattered", {f64({5, 4}), ids({3, 4}, 5), f64({3, 4})},
           [](const In& in) { return Out{scatter_add(in[0], 0, in[1], in[2])}; }),
      call("scattered columns", {f64({5, 4}), ids({5, 6}, 4), f64({5, 6})},
           [](const In& in) { return Out{scatter_add(in[0], 1, in[1], in[2])}; }),
      call("scattered, the last stays", {f64({6, 2}), ids({9, 2}, 6), fixed({9, 2})},
           [](const In& in) {
             return Out{scatter(in[0].detach(), 0, in[1], in[2]), scatter(in[0], 0, in[1], 2.5)};
           }),
      call(
          "scatter_reduce", {f64({5, 3}), ids({9, 3}, 5), distinct({9, 3})},
          [](const In& in) {
            return Out{
                scatter_reduce(in[0], 0, in[1], in[2], "amax"), scatter_reduce(in[0], 0, in[1], in[2], "mean", false),
                scatter_reduce(in[0], 0, in[1], in[2], "sum"), scatter_reduce(in[0], 0, in[1], in[2], "amin", false)};
          },
          1e-11),
      call(
          "scatter_reduce of products", {fixed({5, 3}), ids({9, 3}, 5), fixed({9, 3})},
          [](const In& in) { return Out{scatter_reduce(in[0], 0, in[1], in[2], "prod")}; }, 1e-11),
      call("index_add", {f64({5, 3}), ids({7}, 5), f64({7, 3})},
           [](const In& in) { return Out{index_add(in[0], 0, in[1], in[2], 2)}; }),
      call("index_add to columns", {f64({5, 3}), ids({4}, 3), f64({5, 4})},
           [](const In& in) { return Out{index_add(in[0], 1, in[1], in[2])}; }),
      call("index_copy and index_fill", {f64({5, 3}), f64({2, 3})},
           [](const In& in) {
             const Tensor at = from_host(HostTensor::of<int64_t>({2}, {4, 1}), {.mesh = in[0].mesh()});
             return Out{index_copy(in[0], 0, at, in[1]), index_fill(in[0], 0, at, 3),
                        index_fill(in[0], 1, at - 1 - 0 * at + (at > 2) * -2, 1)};
           }),
      call("a diagonal put", {f64({4, 4}), f64({4})},
           [](const In& in) {
             const Tensor at = arange(4, {.mesh = in[0].mesh()});
             return Out{index_put(in[0], {at, at}, in[1]), index_put(in[0], {at, at}, in[1], true)};
           }),
      call("rows put", {f64({5, 3}), ids({4}, 5), f64({3})},
           [](const In& in) {
             return Out{index_put(in[0], {in[1]}, in[2], true), index_put(in[0].detach(), {in[1]}, in[2].detach())};
           }),
      call("columns put", {f64({5, 3}), ids({2}, 3), f64({5, 1})},
           [](const In& in) {
             return Out{index_put(in[0], {std::nullopt, in[1]}, in[2], true)};
           }),
      call("put by a mask", {f64({5, 3}), mask({5, 3}), f64({})},
           [](const In& in) { return Out{index_put(in[0], {in[1]}, in[2])}; }),
      call("put into the flattened", {f64({4, 4}), f64({3})},
           [](const In& in) {
             const Tensor at = from_host(HostTensor::of<int64_t>({3}, {14, 0, 7}), {.mesh = in[0].mesh()});
             return Out{put(in[0], at, in[1]), put(in[0], at - 16, in[1], true)};
           }),
      call("integers put", {whole({16}), whole({5})},
           [](const In& in) {
             const Tensor at = arange(0, 15, 3, {.mesh = in[0].mesh()});
             return Out{put(in[0], at, in[1]), index_put(in[0], {at}, in[1]), scatter_add(in[0], 0, at, in[1]),
                        index_add(in[0], 0, at, in[1])};
           }),
      call("assigned to slices", {f64({7, 3}), f64({2, 3}), f64({7})},
           [](const In& in) {
             return Out{slice_scatter(in[0], in[1], 0, 1, 6, 3), select_scatter(in[0], in[2], 1, -1),
                        slice_scatter(in[0], in[1], 0, 5)};
           }),
      call("assigned to a diagonal", {f64({5, 3}), f64({3})},
           [](const In& in) {
             return Out{diagonal_scatter(in[0], in[1]), diagonal_scatter(in[0], narrow(in[1], 0, 0, 2), 1)};
           }),
      call("bool placed", {mask({5, 3}), mask({2, 3})},
           [](const In& in) {
             return Out{slice_scatter(in[0], in[1], 0, 2, 4), cat({in[0], in[1]}, 0)};
           }),
      call("an embedding", {ids({2, 5}, 7), f64({7, 4})}, [](const In& in) { return Out{embedding(in[0], in[1])}; }),
      call("an embedding of few rows", {ids({5}, 2), f64({2, 3})},
           [](const In& in) { return Out{embedding(in[0], in[1])}; }),
      call(
          "an embedding of bfloat16", {ids({5}, 7), of({7, 4}, kBFloat16)},
          [](const In& in) { return Out{embedding(in[0], in[1])}; }, 0.02),
      call("positions computed, then used", {distinct({7, 4})},
           [](const In& in) {
             const Tensor at = argmax(in[0], 0, true);
             return Out{gather(in[0], 0, at), take_along_dim(in[0], argsort(in[0], 0), 0)};
           }),
  };
}

}  // namespace dtorch::test
