// Views of views, cuts with steps, joins, rearrangements.
#include "tests/layouts/calls.h"

namespace dtorch::test {

std::vector<Sample> shape_calls() {
  return {
      call("merge and split dims", {f64({2, 6, 4})},
           [](const In& in) {
             return Out{reshape(in[0], {12, 4}), reshape(in[0], {2, 24}), reshape(in[0], {2, 2, 3, 4}),
                        reshape(in[0], {-1})};
           }),
      call("a view to dims of size 1", {f64({5, 3})},
           [](const In& in) {
             return Out{view(in[0], {5, 1, 3}), view(in[0], {1, 5, 3, 1}), view(in[0], {15})};
           }),
      call("a view of nothing", {f64({0, 4})},
           [](const In& in) {
             return Out{reshape(in[0], {0, 2, 2}), flatten(in[0])};
           }),
      call("a view of one element", {f64({1, 1})},
           [](const In& in) {
             return Out{reshape(in[0], {}), squeeze(in[0]), reshape(in[0], {1, 1, 1})};
           }),
      call("a split dim merged back", {f64({8, 3})},
           [](const In& in) {
             return Out{reshape(reshape(in[0], {2, 4, 3}), {8, 3})};
           }),
      call("a view of a transposed tensor", {f64({4, 6})},
           [](const In& in) {
             return Out{reshape(transpose(in[0], 0, 1), {6, 2, 2}), reshape(t(in[0]), {24})};
           }),
      call("views of views with steps", {f64({9, 8})},
           [](const In& in) {
             const Tensor odd = slice(in[0], 0, 1, 9, 2), third = slice(odd, 1, 0, 8, 3);
             return Out{odd,
                        third,
                        slice(third, 0, 1, 3),
                        transpose(third, 0, 1),
                        reshape(third, {2, 6}),
                        select(third, 1, 2) * 2};
           }),
      call("a slice of a transposed view", {f64({6, 7})},
           [](const In& in) {
             return Out{slice(transpose(in[0], 0, 1), 0, 2, 7, 2), narrow(permute(in[0], {1, 0}), 1, 1, 3)};
           }),
      call("negative positions", {f64({7, 3})},
           [](const In& in) {
             return Out{slice(in[0], 0, -4, -1), select(in[0], 0, -2), select(in[0], 1, -1), narrow(in[0], 0, 2, 0),
                        slice(in[0], 0, 5, 100)};
           }),
      call("empty slices", {f64({7, 3})},
           [](const In& in) {
             return Out{slice(in[0], 0, 3, 3), slice(in[0], 1, 2, 1), sum(slice(in[0], 0, 7, 9))};
           }),
      call("cat of unequal sizes", {f64({5, 3}), f64({2, 3}), f64({0, 3})},
           [](const In& in) {
             return Out{cat({in[0], in[1], in[2]}, 0), cat({in[1], in[0]}, -2)};
           }),
      call("cat with itself", {f64({5, 3})},
           [](const In& in) {
             return Out{cat({in[0], in[0], in[0]}, 0), cat({in[0], in[0]}, 1), stack({in[0], in[0]}, -1)};
           }),
      call(
          "cat of dtypes", {f64({5, 3}), f32({5, 3}), whole({5, 3})},
          [](const In& in) {
            return Out{cat({in[0], in[1]}, 0), cat({in[1], in[2]}, 1)};
          },
          1e-5),
      call("stacks", {f64({5, 3}), f64({5, 3})},
           [](const In& in) {
             return Out{stack({in[0], in[1]}, 1), hstack({in[0], in[1]}), vstack({in[0], in[1]}),
                        dstack({in[0], in[1]})};
           }),
      call("stacks of vectors", {f64({5}), f64({5})},
           [](const In& in) {
             return Out{column_stack({in[0], in[1]}), hstack({in[0], in[1]}), vstack({in[0], in[1]})};
           }),
      call("chunks", {f64({7, 4})}, [](const In& in) { return chunk(in[0], 3, 0); }),
      call("one chunk used", {f64({7, 4})}, [](const In& in) { return Out{chunk(in[0], 3, 0)[1]}; }),
      call("splits", {f64({7, 4})},
           [](const In& in) {
             return split(in[0], std::vector<int64_t>{3, 0, 4}, 0);
           }),
      call("unbind", {f64({3, 4})}, [](const In& in) { return unbind(in[0], 0); }),
      call("tensor_split", {f64({7, 4})}, [](const In& in) { return tensor_split(in[0], 3, 0); }),
      call("expanded", {f64({1, 3}), f64({5, 1})},
           [](const In& in) {
             return Out{expand(in[0], {4, 3}), expand(in[1], {2, 5, 6}), broadcast_to(in[0], {2, 2, 3})};
           }),
      call("an expanded tensor used", {f64({1, 3}), f64({5, 3})},
           [](const In& in) {
             return Out{expand(in[0], {5, 3}) * in[1], sum(expand(in[0], {5, 3}), {0})};
           }),
      call("squeezed", {f64({1, 5, 1, 3})},
           [](const In& in) {
             return Out{squeeze(in[0]), squeeze(in[0], 2), squeeze(in[0], std::vector<int64_t>{0, 2}),
                        unsqueeze(in[0], 2)};
           }),
      call("permuted", {f64({2, 5, 3})},
           [](const In& in) {
             return Out{permute(in[0], {2, 0, 1}), movedim(in[0], 0, 2), swapaxes(in[0], 1, 2),
                        permute(permute(in[0], {1, 2, 0}), {2, 0, 1})};
           }),
      call("flips", {f64({5, 3})},
           [](const In& in) {
             return Out{flip(in[0], {0, 1}), fliplr(in[0]), rot90(in[0]), rot90(in[0], 2), rot90(in[0], -1)};
           }),
      call("rolls", {f64({5, 3})},
           [](const In& in) {
             return Out{roll(in[0], {2}, {0}), roll(in[0], {-7, 4}, {0, 1}), roll(in[0], {4}), roll(in[0], {0}, {0})};
           }),
      call("repeats", {f64({5, 3})},
           [](const In& in) {
             return Out{repeat(in[0], {2, 1, 3}), tile(in[0], {2}), repeat_interleave(in[0], 3, 0),
                        repeat_interleave(in[0], 2), repeat(in[0], {0, 2})};
           }),
      call("pads", {f64({5, 4})},
           [](const In& in) {
             return Out{pad(in[0], {1, 2, 3, 4}, "constant", 7), pad(in[0], {-1, 2}),
                        pad(in[0], {0, 0, 2, 1}, "reflect"),     pad(in[0], {1, 1, 2, 3}, "replicate"),
                        pad(in[0], {0, 0, 3, 2}, "circular"),    pad(in[0], {0, 0, -2, -1})};
           }),
      call("pads of few rows", {f64({1, 4})},
           [](const In& in) {
             return Out{pad(in[0], {0, 0, 2, 3}), pad(in[0], {0, 0, 1, 2}, "replicate")};
           }),
      call("unflattened", {f64({6, 4})},
           [](const In& in) {
             return Out{unflatten(in[0], 0, {2, 3}), unflatten(in[0], 1, {-1, 2}), ravel(in[0])};
           }),
      call("block_diag", {f64({2, 3}), f64({3, 1})},
           [](const In& in) {
             return Out{block_diag({in[0], in[1]})};
           }),
      call("meshgrid", {f64({3}), f64({5})},
           [](const In& in) {
             Out out = meshgrid({in[0], in[1]});
             out.push_back(cartesian_prod({in[0], in[1]}));
             return out;
           }),
      call("slice then product", {f64({8, 6}), f64({6, 5})},
           [](const In& in) {
             return Out{matmul(slice(in[0], 0, 1, 8, 3), in[1]), matmul(in[0], slice(in[1], 1, 1, 4))};
           }),
      call("put back where it came from", {f64({8, 3})},
           [](const In& in) {
             return Out{slice_scatter(in[0], slice(in[0], 0, 4, 8), 0, 0, 4),
                        cat({slice(in[0], 0, 4, 8), slice(in[0], 0, 0, 4)}, 0)};
           }),
      call("bool and integers rearranged", {mask({5, 4}), whole({5, 4}, kInt16)},
           [](const In& in) {
             return Out{flip(in[0], {0}),   cat({in[0], in[0]}, 0),   roll(in[1], {2}, {0}),
                        pad(in[1], {1, 1}), slice(in[0], 0, 1, 5, 2), transpose(in[1], 0, 1)};
           }),
  };
}

}  // namespace dtorch::test
