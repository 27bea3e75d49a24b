// mm, bmm, mv, dot, vdot, inner, outer and tensordot: matmul, einsum and mul for operands of certain ranks. Layouts and
// gradients are those of the operators that they record.
#include "ops/math/contractions.h"

#include "ops/math/products.h"
#include "ops/shape/composed.h"

namespace dtorch {
namespace {

using namespace math;
using shaping::composition;
using shaping::single;

template <Tensor (*kFunction)(const Tensor&, const Tensor&, Where)>
std::vector<Sample> samples_of(Shape a, Shape b, Shape small_a, Shape small_b) {
  const auto call = single([](const auto& in) { return kFunction(in[0], in[1], Where::current()); });
  return {{.name = "uneven", .inputs = {normal(a), normal(b)}, .call = call},
          {.name = "size 1, float64", .inputs = {normal(small_a, kFloat64), normal(small_b, kFloat64)}, .call = call},
          {.name = "integers", .inputs = {integers(a), integers(b)}, .call = call}};
}
std::vector<Sample> mm_samples() { return samples_of<mm>({5, 7}, {7, 3}, {1, 5}, {5, 1}); }
std::vector<Sample> bmm_samples() { return samples_of<bmm>({3, 5, 2}, {3, 2, 4}, {5, 1, 3}, {5, 3, 1}); }
std::vector<Sample> mv_samples() { return samples_of<mv>({5, 7}, {7}, {1, 5}, {5}); }
std::vector<Sample> dot_samples() { return samples_of<dot>({5}, {5}, {1}, {1}); }
std::vector<Sample> vdot_samples() { return samples_of<vdot>({7}, {7}, {0}, {0}); }
std::vector<Sample> inner_samples() { return samples_of<inner>({5, 3}, {2, 3}, {2, 1, 5}, {5}); }
std::vector<Sample> outer_samples() { return samples_of<outer>({5}, {3}, {1}, {5}); }
std::vector<Sample> tensordot_samples() {
  return {{.name = "last with first dims",
           .inputs = {normal({5, 3, 2}), normal({3, 2, 4})},
           .call = single([](const auto& in) { return tensordot(in[0], in[1]); })},
          {.name = "given dims, size 1",
           .inputs = {normal({5, 1, 3}, kFloat64), normal({2, 3, 5}, kFloat64)},
           .call = single([](const auto& in) {
             return tensordot(in[0], in[1], {0, 2}, {-1, 1});
           })}};
}

void need_dims(const char* op, const Tensor& a, int64_t ndim_a, const Tensor& b, int64_t ndim_b, const Where& where) {
  if (a.ndim() == ndim_a && b.ndim() == ndim_b) return;
  throw at_line(ShapeError("[" + std::string(op) + "] needs operands of " + std::to_string(ndim_a) + " and " +
                           std::to_string(ndim_b) + " dims, got " + a.shape().str() + " and " + b.shape().str()),
                where);
}

Tensor dot_of(const char* op, const Tensor& a, const Tensor& b, const Where& where) {
  need_dims(op, a, 1, b, 1, where);
  return matmul(a, b, where);
}

}  // namespace

constinit OperatorDef mm_op = composition("mm", "mm(a, b) -> Tensor", mm_samples, "each");
constinit OperatorDef bmm_op = composition("bmm", "bmm(a, b) -> Tensor", bmm_samples, "each");
constinit OperatorDef mv_op = composition("mv", "mv(a, v) -> Tensor", mv_samples, "each");
constinit OperatorDef dot_op = composition("dot", "dot(a, b) -> Tensor", dot_samples, "each");
constinit OperatorDef vdot_op = composition("vdot", "vdot(a, b) -> Tensor", vdot_samples, "each");
constinit OperatorDef inner_op = composition("inner", "inner(a, b) -> Tensor", inner_samples, "each");
constinit OperatorDef outer_op = composition("outer", "outer(a, b) -> Tensor", outer_samples, "each");
constinit OperatorDef tensordot_op =
    composition("tensordot", "tensordot(a, b, dims_a, dims_b) -> Tensor", tensordot_samples, "each");

Tensor mm(const Tensor& a, const Tensor& b, Where where) {
  need_dims("mm", a, 2, b, 2, where);
  return matmul(a, b, where);
}
Tensor bmm(const Tensor& a, const Tensor& b, Where where) {
  need_dims("bmm", a, 3, b, 3, where);
  if (a.shape()[0] != b.shape()[0]) {
    throw at_line(
        ShapeError("[bmm] batches are " + std::to_string(a.shape()[0]) + " and " + std::to_string(b.shape()[0]) +
                   " in " + a.shape().str() + " and " + b.shape().str() + "; matmul broadcasts"),
        where);
  }
  return matmul(a, b, where);
}
Tensor mv(const Tensor& a, const Tensor& v, Where where) {
  need_dims("mv", a, 2, v, 1, where);
  return matmul(a, v, where);
}
Tensor dot(const Tensor& a, const Tensor& b, Where where) { return dot_of("dot", a, b, where); }
Tensor vdot(const Tensor& a, const Tensor& b, Where where) { return dot_of("vdot", a, b, where); }

Tensor inner(const Tensor& a, const Tensor& b, Where where) {
  if (a.ndim() == 0 || b.ndim() == 0) return mul(a, b, where);
  if (a.shape().back() != b.shape().back()) {
    throw at_line(ShapeError("[inner] last dims must be equal, got " + a.shape().str() + " and " + b.shape().str()),
                  where);
  }
  if (a.ndim() == 1 && b.ndim() == 1) return matmul(a, b, where);
  return tensordot(a, b, {-1}, {-1}, where);
}
Tensor outer(const Tensor& a, const Tensor& b, Where where) {
  need_dims("outer", a, 1, b, 1, where);
  return mul(unsqueeze(a, 1, where), unsqueeze(b, 0, where), where);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int64_t>& dims_a,
                 const std::vector<int64_t>& dims_b, Where where) {
  bool legal = dims_a.size() == dims_b.size();
  std::string of_a, of_b, out;
  for (int64_t d = 0; d < a.ndim(); ++d) of_a.push_back(static_cast<char>('a' + d));
  for (int64_t d = 0; d < b.ndim(); ++d) of_b.push_back(static_cast<char>('A' + d));
  shaping::distinct_dims("tensordot", dims_a, a.ndim(), where);
  shaping::distinct_dims("tensordot", dims_b, b.ndim(), where);
  std::string free_a = of_a, free_b = of_b;
  for (size_t i = 0; legal && i < dims_a.size(); ++i) {
    const int64_t in_a = normalize_dim(dims_a[i], a.ndim(), "tensordot");
    const int64_t in_b = normalize_dim(dims_b[i], b.ndim(), "tensordot");
    legal = a.shape()[in_a] == b.shape()[in_b];
    std::erase(free_a, of_a[static_cast<size_t>(in_a)]);
    std::erase(free_b, of_b[static_cast<size_t>(in_b)]);
    of_b[static_cast<size_t>(in_b)] = of_a[static_cast<size_t>(in_a)];
  }
  if (!legal) {
    throw at_line(ShapeError("[tensordot] dims " + Shape(dims_a.begin(), dims_a.end()).str() + " of " +
                             a.shape().str() + " and " + Shape(dims_b.begin(), dims_b.end()).str() + " of " +
                             b.shape().str() + " must be equally many, of equal sizes"),
                  where);
  }
  return einsum(of_a + "," + of_b + "->" + free_a + free_b, {a, b}, where);
}
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims, Where where) {
  if (dims < 0 || dims > std::min(a.ndim(), b.ndim())) {
    throw at_line(ShapeError("[tensordot] dims is " + std::to_string(dims) + " for " + a.shape().str() + " and " +
                             b.shape().str()),
                  where);
  }
  std::vector<int64_t> dims_a, dims_b;
  for (int64_t i = 0; i < dims; ++i) {
    dims_a.push_back(a.ndim() - dims + i);
    dims_b.push_back(i);
  }
  return tensordot(a, b, dims_a, dims_b, where);
}

}  // namespace dtorch
