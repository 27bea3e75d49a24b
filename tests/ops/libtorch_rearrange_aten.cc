// Cases of libtorch_cases_aten.h: shapes, and products beyond matmul and linear.
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
#include <ATen/ops/addr.h>
#include <ATen/ops/atleast_1d.h>
#include <ATen/ops/atleast_2d.h>
#include <ATen/ops/atleast_3d.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/block_diag.h>
#include <ATen/ops/cartesian_prod.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/chain_matmul.h>
#include <ATen/ops/column_stack.h>
#include <ATen/ops/cross.h>
#include <ATen/ops/dstack.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/hstack.h>
#include <ATen/ops/kron.h>
#include <ATen/ops/linalg_multi_dot.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensordot.h>
#include <ATen/ops/vstack.h>

#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {
namespace {

void add_order_and_copies(LibTorchCases& cases) {
  DTORCH_CASE("flip", ({normal({4, 7, 2})}), flip(in[0], {0, 2}), in[0].flip({0, 2}));
  DTORCH_CASE("fliplr", ({normal({4, 7})}), fliplr(in[0]), in[0].fliplr());
  DTORCH_CASE("flipud", ({normal({4, 7})}), flipud(in[0]), in[0].flipud());
  DTORCH_CASE("rot90", ({normal({4, 7, 2})}), rot90(in[0], 3, {2, 0}), in[0].rot90(3, {2, 0}));
  DTORCH_CASE("roll", ({normal({4, 7})}), roll(in[0], {9, -1}, {1, 0}), in[0].roll({9, -1}, {1, 0}));
  DTORCH_CASE("roll", ({normal({4, 7})}), roll(in[0], {5}), in[0].roll({5}));
  DTORCH_CASE("repeat", ({normal({4, 3})}), repeat(in[0], {2, 1, 3}), in[0].repeat({2, 1, 3}));
  DTORCH_CASE("tile", ({normal({4, 3})}), tile(in[0], {2}), in[0].tile({2}));
  DTORCH_CASE("repeat_interleave", ({normal({4, 3})}), repeat_interleave(in[0], 3, 1), in[0].repeat_interleave(3, 1));
  DTORCH_CASE("repeat_interleave", ({normal({4, 3})}), repeat_interleave(in[0], 2), in[0].repeat_interleave(2));
  DTORCH_CASE("pad", ({normal({4, 3, 2})}), pad(in[0], {1, 2, -1, 3}, "constant", 0.5),
              at::pad(in[0], {1, 2, -1, 3}, "constant", 0.5));
  DTORCH_CASE("pad_from", ({normal({2, 4, 5})}), pad(in[0], {3, 2}, "reflect"), at::pad(in[0], {3, 2}, "reflect"));
  DTORCH_CASE("pad_from", ({normal({2, 4, 5})}), pad(in[0], {-2, 1, 1, 2}, "reflect"),
              at::pad(in[0], {-2, 1, 1, 2}, "reflect"));
  DTORCH_CASE("pad_from", ({normal({2, 4, 5})}), pad(in[0], {7, 1, 0, 9}, "replicate"),
              at::pad(in[0], {7, 1, 0, 9}, "replicate"));
  DTORCH_CASE("pad_from", ({normal({2, 4, 5})}), pad(in[0], {5, 1, 2, 3}, "circular"),
              at::pad(in[0], {5, 1, 2, 3}, "circular"));
  DTORCH_CASE("pad_from", ({normal({2, 4, 5})}), pad(in[0], {-2, 1}, "circular"), at::pad(in[0], {-2, 1}, "circular"));
  DTORCH_CASE("unfold_dim", ({normal({2, 9, 3})}), unfold(in[0], 1, 4, 2), in[0].unfold(1, 4, 2));
}

void add_triangles_and_diagonals(LibTorchCases& cases) {
  DTORCH_CASE("tril", ({normal({2, 5, 7})}), tril(in[0], 1), in[0].tril(1));
  DTORCH_CASE("triu", ({normal({7, 5})}), triu(in[0], -2), in[0].triu(-2));
  DTORCH_CASE("diagonal", ({normal({5, 7, 3})}), diagonal(in[0], 2, 0, 1), in[0].diagonal(2, 0, 1));
  DTORCH_CASE("diagonal", ({normal({5, 7, 3})}), diagonal(in[0], -1, -1, 0), in[0].diagonal(-1, -1, 0));
  DTORCH_CASE("diag_embed", ({normal({5, 7})}), diag_embed(in[0], -1), in[0].diag_embed(-1));
  DTORCH_CASE("diag_embed", ({normal({5, 7})}), diag_embed(in[0], 2, 2, 0), in[0].diag_embed(2, 2, 0));
  DTORCH_CASE("diag", ({normal({5})}), diag(in[0], 2), in[0].diag(2));
  DTORCH_CASE("diag", ({normal({5, 4})}), diag(in[0], -1), in[0].diag(-1));
  // LibTorch adds the diagonal up one by one, sum in blocks.
  DTORCH_CASE_WITHIN(1e-6, "trace", ({normal({33, 40})}), trace(in[0]), in[0].trace());
}

void add_views(LibTorchCases& cases) {
  DTORCH_CASE("movedim", ({normal({4, 3, 2})}), movedim(in[0], {0, 2}, {1, 0}), in[0].movedim({0, 2}, {1, 0}));
  DTORCH_CASE("movedim", ({normal({4, 3, 2})}), movedim(in[0], -1, 0), in[0].movedim(-1, 0));
  DTORCH_CASE("swapaxes", ({normal({4, 3, 2})}), swapaxes(in[0], 0, -1), in[0].swapaxes(0, -1));
  DTORCH_CASE("swapaxes", ({normal({4, 3, 2})}), swapdims(in[0], 0, -1), in[0].swapdims(0, -1));
  DTORCH_CASE("broadcast_to", ({normal({4, 1})}), broadcast_to(in[0], {2, 4, 3}), in[0].broadcast_to({2, 4, 3}));
  cases.add(
      "expand_as", {normal({4, 1}), ids({4, 3}, 2)}, [](const Ours& in) { return Ours{expand_as(in[0], in[1])}; },
      [](const Theirs& in) { return Theirs{in[0].expand_as(in[1])}; });
  cases.add(
      "view_as", {normal({4, 6}), ids({4, 3, 2}, 2)}, [](const Ours& in) { return Ours{view_as(in[0], in[1])}; },
      [](const Theirs& in) { return Theirs{in[0].view_as(in[1])}; });
  cases.add(
      "reshape_as", {normal({4, 6}), ids({8, 3}, 2)}, [](const Ours& in) { return Ours{reshape_as(in[0], in[1])}; },
      [](const Theirs& in) { return Theirs{in[0].reshape_as(in[1])}; });
  DTORCH_CASE("ravel", ({normal({4, 3})}), ravel(in[0]), in[0].ravel());
  DTORCH_CASE("unflatten", ({normal({4, 6})}), unflatten(in[0], 1, {-1, 3}), in[0].unflatten(1, {-1, 3}));
  DTORCH_CASE("atleast_1d", ({normal({})}), atleast_1d(in[0]), at::atleast_1d(in[0]));
  DTORCH_CASE("atleast_2d", ({normal({3})}), atleast_2d(in[0]), at::atleast_2d(in[0]));
  DTORCH_CASE("atleast_3d", ({normal({4, 3})}), atleast_3d(in[0]), at::atleast_3d(in[0]));
  DTORCH_CASE("atleast_3d", ({normal({3})}), atleast_3d(in[0]), at::atleast_3d(in[0]));
  DTORCH_CASE("squeeze", ({normal({1, 4, 1, 3, 1})}), squeeze(in[0], std::vector<int64_t>{0, -1, 1}),
              in[0].squeeze(at::IntArrayRef{0, -1, 1}));
  DTORCH_CASE("unsqueeze", ({normal({4, 3})}), unsqueeze(in[0], std::vector<int64_t>{0, -1}),
              in[0].unsqueeze(0).unsqueeze(-1));
}

void add_cutting_and_joining(LibTorchCases& cases) {
  const auto cuts = [&cases](const char* op, SampleInput input, auto ours, auto theirs) {
    cases.add(
        op, {input}, [ours](const Ours& in) { return ours(in[0]); },
        [theirs](const Theirs& in) { return theirs(in[0]); });
  };
  using Indices = std::vector<int64_t>;
  cuts(
      "unbind", normal({4, 3}), [](const Tensor& x) { return unbind(x, 1); },
      [](const at::Tensor& x) { return x.unbind(1); });
  cuts(
      "tensor_split", normal({7, 3}), [](const Tensor& x) { return tensor_split(x, 3); },
      [](const at::Tensor& x) { return x.tensor_split(3, 0); });
  cuts(
      "tensor_split", normal({2, 7}),
      [](const Tensor& x) {
        return tensor_split(x, Indices{2, -1, 9}, 1);
      },
      [](const at::Tensor& x) {
        return x.tensor_split(at::IntArrayRef{2, -1, 9}, 1);
      });
  cuts(
      "tensor_split", normal({7}),
      [](const Tensor& x) {
        return tensor_split(x, Indices{5, 2});
      },
      [](const at::Tensor& x) {
        return x.tensor_split(at::IntArrayRef{5, 2}, 0);
      });
  cuts(
      "hsplit", normal({4, 6}), [](const Tensor& x) { return hsplit(x, 3); },
      [](const at::Tensor& x) { return x.hsplit(3); });
  cuts(
      "vsplit", normal({4, 6}),
      [](const Tensor& x) {
        return vsplit(x, Indices{1, 2});
      },
      [](const at::Tensor& x) {
        return x.vsplit(at::IntArrayRef{1, 2});
      });
  cuts(
      "dsplit", normal({2, 3, 6}), [](const Tensor& x) { return dsplit(x, 2); },
      [](const at::Tensor& x) { return x.dsplit(2); });
  DTORCH_CASE("select", ({normal({4, 7})}), select(in[0], 1, -2), in[0].select(1, -2));
  DTORCH_CASE("narrow", ({normal({4, 7})}), narrow(in[0], 1, 2, 3), in[0].narrow(1, 2, 3));
  DTORCH_CASE("stack", ({normal({4, 7}), normal({4, 7})}), stack(in, 1), at::stack(in, 1));
  DTORCH_CASE("hstack", ({normal({4, 7}), normal({4, 2})}), hstack(in), at::hstack(in));
  DTORCH_CASE("hstack", ({normal({}), normal({3})}), hstack(in), at::hstack(in));
  DTORCH_CASE("vstack", ({normal({4, 7}), normal({7})}), vstack(in), at::vstack(in));
  DTORCH_CASE("dstack", ({normal({4, 7}), normal({4, 7})}), dstack(in), at::dstack(in));
  DTORCH_CASE("column_stack", ({normal({4}), normal({4, 2})}), column_stack(in), at::column_stack(in));
  DTORCH_CASE("block_diag", ({normal({4, 2}), normal({3}), normal({})}), block_diag(in), at::block_diag(in));
  DTORCH_CASE("cartesian_prod", ({normal({4}), normal({3}), normal({2})}), cartesian_prod(in), at::cartesian_prod(in));
  cases.add(
      "meshgrid", {normal({4}), normal({3}), normal({})}, [](const Ours& in) { return meshgrid(in, "xy"); },
      [](const Theirs& in) { return at::meshgrid(in, "xy"); });
}

void add_products(LibTorchCases& cases) {
  DTORCH_CASE("mm", ({normal({5, 33}), normal({33, 7})}), mm(in[0], in[1]), in[0].mm(in[1]));
  DTORCH_CASE("bmm", ({normal({3, 5, 33}), normal({3, 33, 7})}), bmm(in[0], in[1]), in[0].bmm(in[1]));
  DTORCH_CASE("mv", ({normal({5, 33}), normal({33})}), mv(in[0], in[1]), in[0].mv(in[1]));
  DTORCH_CASE("dot", ({normal({33}), normal({33})}), dot(in[0], in[1]), in[0].dot(in[1]));
  DTORCH_CASE("vdot", ({normal({33}), normal({33})}), vdot(in[0], in[1]), in[0].vdot(in[1]));
  DTORCH_CASE("inner", ({normal({33}), normal({33})}), inner(in[0], in[1]), in[0].inner(in[1]));
  DTORCH_CASE("inner", ({normal({}), normal({5})}), inner(in[0], in[1]), in[0].inner(in[1]));
  // The same products in another order of dims than LibTorch's.
  DTORCH_CASE_WITHIN(1e-6, "inner", ({normal({2, 3, 33}), normal({4, 33})}), inner(in[0], in[1]), in[0].inner(in[1]));
  DTORCH_CASE_WITHIN(1e-6, "tensordot", ({normal({4, 3, 5}), normal({5, 2, 4})}),
                     tensordot(in[0], in[1], {0, -1}, {2, 0}), at::tensordot(in[0], in[1], {0, -1}, {2, 0}));
  DTORCH_CASE("outer", ({normal({5}), normal({7})}), outer(in[0], in[1]), in[0].outer(in[1]));
  DTORCH_CASE("addmm", ({normal({7}), normal({5, 33}), normal({33, 7})}), addmm(in[0], in[1], in[2], 0.5, 2),
              at::addmm(in[0], in[1], in[2], 0.5, 2));
  DTORCH_CASE("addmv", ({normal({5}), normal({5, 33}), normal({33})}), addmv(in[0], in[1], in[2], 2, 0.3),
              at::addmv(in[0], in[1], in[2], 2, 0.3));
  DTORCH_CASE("addbmm", ({normal({5, 7}), normal({3, 5, 33}), normal({3, 33, 7})}), addbmm(in[0], in[1], in[2], 2, 0.3),
              at::addbmm(in[0], in[1], in[2], 2, 0.3));
  DTORCH_CASE("baddbmm", ({normal({5, 7}), normal({3, 5, 33}), normal({3, 33, 7})}),
              baddbmm(in[0], in[1], in[2], 2, 0.3), at::baddbmm(in[0], in[1], in[2], 2, 0.3));
  DTORCH_CASE("addr", ({normal({5, 7}), normal({5}), normal({7})}), addr(in[0], in[1], in[2], 2, 0.3),
              at::addr(in[0], in[1], in[2], 2, 0.3));
  DTORCH_CASE("cross", ({normal({4, 3, 5}), normal({1, 3, 5})}), cross(in[0], in[1], 1), at::cross(in[0], in[1], 1));
  DTORCH_CASE("multi_dot", ({normal({4}), normal({4, 33}), normal({33, 5}), normal({5, 9})}), multi_dot(in),
              at::linalg_multi_dot(in));
  DTORCH_CASE("multi_dot", ({normal({4, 9}), normal({9, 2}), normal({2, 3}), normal({3})}), multi_dot(in),
              at::linalg_multi_dot(in));
  DTORCH_CASE("chain_matmul", ({normal({4, 9}), normal({9, 2}), normal({2, 3})}), chain_matmul(in),
              at::chain_matmul(in));
  DTORCH_CASE("matrix_power", ({normal({2, 4, 4})}), matrix_power(in[0], 3), in[0].matrix_power(3));
  DTORCH_CASE("matrix_power", ({normal({4, 4})}), matrix_power(in[0], 6), in[0].matrix_power(6));
  DTORCH_CASE("kron", ({normal({3, 4}), normal({2, 5})}), kron(in[0], in[1]), in[0].kron(in[1]));
  DTORCH_CASE("kron", ({normal({3}), normal({2, 5, 2})}), kron(in[0], in[1]), in[0].kron(in[1]));
  DTORCH_CASE_WITHIN(1e-6, "cdist", ({normal({2, 5, 33}), normal({1, 7, 33})}), cdist(in[0], in[1]),
                     at::cdist(in[0], in[1], 2));
}

void add_einsum(LibTorchCases& cases) {
  const auto compare = [&cases](const char* formula, std::vector<SampleInput> inputs) {
    cases.add(
        "einsum", std::move(inputs), [formula](const Ours& in) { return Ours{einsum(formula, in)}; },
        [formula](const Theirs& in) { return Theirs{at::einsum(formula, in)}; }, 1e-6);
  };
  compare("ij,jk,kl->il", {normal({4, 5}), normal({5, 6}), normal({6, 3})});
  compare("ij,jk", {normal({4, 5}), normal({5, 6})});
  compare("ba", {normal({4, 5})});
  compare("ii", {normal({5, 5})});
  compare("ii->i", {normal({5, 5})});
  compare("iji,jk->ki", {normal({4, 5, 4}), normal({5, 2})});
  compare("ijk->j", {normal({4, 5, 3})});
  compare("ij,kl->i", {normal({4, 5}), normal({3, 2})});
  compare("...ij,...jk->...ik", {normal({2, 1, 4, 5}), normal({3, 5, 2})});
  compare("b...,b...", {normal({4, 3, 2}), normal({4, 2})});
  compare("...j,jk->k...", {normal({4, 3, 5}), normal({5, 2})});
  compare("ij,ij->j", {normal({4, 5}), normal({1, 5})});
  compare(",ij->ji", {normal({}), normal({4, 5})});
  compare("i...->...", {normal({4, 3, 2})});
}

}  // namespace

void add_rearrange_cases(LibTorchCases& cases) {
  add_order_and_copies(cases);
  add_triangles_and_diagonals(cases);
  add_views(cases);
  add_cutting_and_joining(cases);
  add_products(cases);
  add_einsum(cases);
}

}  // namespace dtorch::test
