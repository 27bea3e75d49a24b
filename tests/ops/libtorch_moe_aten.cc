// Mixture of experts from its definition (cases of libtorch_cases_aten.h).
#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros_like.h>

#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {
namespace {

at::Tensor gates_of(const at::Tensor& p, int64_t k) {
  const auto [top, index] = p.topk(k, -1);
  return at::zeros_like(p).scatter(-1, index, top / top.sum(-1, true));
}

at::Tensor experts_of(const Theirs& in) {
  at::Tensor y;
  for (int64_t e = 0; e < in[2].size(0); ++e) {
    const at::Tensor inner = at::silu(in[0].matmul(in[2][e].t())) * in[0].matmul(in[3][e].t());
    const at::Tensor part = inner.matmul(in[4][e].t()) * in[1].narrow(-1, e, 1);
    y = y.defined() ? y + part : part;
  }
  return y;
}

}  // namespace

void add_moe_cases(LibTorchCases& cases) {
  DTORCH_CASE_WITHIN(1e-6, "topk_gates", ({distinct({5, 7})}), topk_gates(sigmoid(in[0]), 3).gates,
                     gates_of(in[0].sigmoid(), 3));
  DTORCH_CASE_WITHIN(1e-5, "moe_experts",
                     ({normal({5, 3}), positive({5, 2}), normal({2, 4, 3}), normal({2, 4, 3}), normal({2, 3, 4})}),
                     moe_experts(in[0], in[1], in[2], in[3], in[4]), experts_of(in));
}

}  // namespace dtorch::test
