// Products, with every way to broadcast and to contract.
#include "tests/layouts/calls.h"

namespace dtorch::test {

std::vector<Sample> product_calls() {
  constexpr double kTolerance = 1e-11;
  std::vector<Sample> calls = {
      call("vector by vector", {f64({5}), f64({5})},
           [](const In& in) {
             return Out{matmul(in[0], in[1]), dot(in[0], in[1])};
           }),
      call("matrix by vector", {f64({4, 5}), f64({5})},
           [](const In& in) {
             return Out{matmul(in[0], in[1]), mv(in[0], in[1])};
           }),
      call("vector by matrix", {f64({5}), f64({5, 3})}, [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("batch by vector", {f64({3, 4, 5}), f64({5})}, [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("vector by batch", {f64({5}), f64({3, 5, 2})}, [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("broadcast batches", {f64({3, 1, 2, 5}), f64({4, 5, 3})},
           [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("a batch by a matrix", {f64({3, 2, 5}), f64({5, 4})},
           [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("a matrix by a batch", {f64({2, 5}), f64({3, 5, 4})},
           [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("nothing contracted", {f64({3, 0}), f64({0, 4})}, [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("one contracted", {f64({3, 1}), f64({1, 4})}, [](const In& in) { return Out{matmul(in[0], in[1])}; }),
      call("linear of a vector", {f64({5}), f64({3, 5}), f64({3})},
           [](const In& in) { return Out{linear(in[0], in[1], in[2])}; }),
      call("linear of four dims", {f64({2, 1, 3, 5}), f64({4, 5})},
           [](const In& in) { return Out{linear(in[0], in[1])}; }),
      call("bmm and baddbmm", {f64({3, 2, 5}), f64({3, 5, 4}), f64({2, 4})},
           [](const In& in) {
             return Out{bmm(in[0], in[1]), baddbmm(in[2], in[0], in[1], 0.5, 2)};
           }),
      call("addbmm", {f64({3, 2, 5}), f64({3, 5, 4}), f64({2, 4})},
           [](const In& in) { return Out{addbmm(in[2], in[0], in[1], 1.5, -1)}; }),
      call("addmm of a broadcast row", {f64({4}), f64({3, 5}), f64({5, 4})},
           [](const In& in) { return Out{addmm(in[0], in[1], in[2])}; }),
      call("addmv and addr", {f64({3}), f64({3, 5}), f64({5})},
           [](const In& in) {
             return Out{addmv(in[0], in[1], in[2]), addr(in[1], in[0], in[2], 2, 0.5)};
           }),
      call("outer and kron", {f64({3}), f64({5})},
           [](const In& in) {
             return Out{outer(in[0], in[1]), kron(in[0], in[1])};
           }),
      call("inner", {f64({3, 5}), f64({2, 5})}, [](const In& in) { return Out{inner(in[0], in[1])}; }),
      call("tensordot", {f64({2, 3, 5}), f64({5, 3, 4})},
           [](const In& in) {
             return Out{tensordot(in[0], in[1], {1, 2}, {1, 0}), tensordot(in[0], in[1], 1)};
           }),
      call("einsum of attention", {f64({2, 3, 4}), f64({2, 5, 4})},
           [](const In& in) { return Out{einsum("bqd,bkd->bqk", in[0], in[1])}; }),
      call("einsum without a sum", {f64({2, 3}), f64({3, 4})},
           [](const In& in) { return Out{einsum("ab,bc->cab", in[0], in[1])}; }),
      call("einsum that drops a letter", {f64({2, 3}), f64({4, 3})},
           [](const In& in) { return Out{einsum("ab,cb->a", in[0], in[1])}; }),
      call("einsum of three", {f64({2, 3}), f64({3, 4}), f64({4, 2})},
           [](const In& in) {
             return Out{einsum("ab,bc,cd->ad", {in[0], in[1], in[2]}), einsum("ab,bc,ca->", {in[0], in[1], in[2]})};
           }),
      call("einsum of one", {f64({3, 4})},
           [](const In& in) {
             return Out{einsum("ab->ba", std::vector<Tensor>{in[0]}), einsum("ab->", std::vector<Tensor>{in[0]})};
           }),
      call("multi_dot", {f64({2, 5}), f64({5, 3}), f64({3, 4})},
           [](const In& in) {
             return Out{multi_dot({in[0], in[1], in[2]})};
           }),
      call("matrix_power", {f64({3, 3})},
           [](const In& in) {
             return Out{matrix_power(in[0], 3), matrix_power(in[0], 0)};
           }),
      call("cross", {f64({5, 3}), f64({5, 3})}, [](const In& in) { return Out{cross(in[0], in[1])}; }),
      call("cdist", {f64({4, 3}), f64({5, 3})}, [](const In& in) { return Out{cdist(in[0], in[1])}; }),
      call("a matrix by itself", {f64({5, 5})}, [](const In& in) { return Out{matmul(in[0], in[0])}; }),
      call("a matrix by its transpose", {f64({5, 3})}, [](const In& in) { return Out{matmul(in[0], t(in[0]))}; }),
      call("bilinear", {f64({4, 3}), f64({4, 2}), f64({5, 3, 2}), f64({5})},
           [](const In& in) { return Out{bilinear(in[0], in[1], in[2], in[3])}; }),
      call(
          "products of bfloat16", {of({4, 6}, kBFloat16), of({6, 3}, kBFloat16)},
          [](const In& in) { return Out{matmul(in[0], in[1])}; }, 0.02),
      call("products of integers", {whole({4, 6}), whole({6, 3})},
           [](const In& in) { return Out{matmul(in[0], in[1])}; }),
  };
  for (Sample& sample : calls) {
    if (sample.tolerance == 0) sample.tolerance = kTolerance;
  }
  return calls;
}

}  // namespace dtorch::test
