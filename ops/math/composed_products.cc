// multi_dot, chain_matmul, matrix_power, kron and cdist: compositions of products and elementwise operators. Layouts
// and gradients are those of the operators that they record. cdist sums over a sharded last dim by itself.
#include <algorithm>

#include "ops/math/contractions.h"
#include "ops/math/products.h"
#include "ops/shape/composed.h"

namespace dtorch {
namespace {

using namespace math;
using shaping::composition;
using shaping::single;

std::vector<Sample> multi_dot_samples() {
  const auto call = single([](const auto& in) { return multi_dot(in); });
  return {{.name = "three matrices",
           .inputs = {normal({5, 2}, kFloat64), normal({2, 7}, kFloat64), normal({7, 3}, kFloat64)},
           .call = call},
          {.name = "vectors at the ends, size 1",
           .inputs = {normal({1}, kFloat64), normal({1, 5}, kFloat64), normal({5}, kFloat64)},
           .call = call}};
}
std::vector<Sample> chain_matmul_samples() {
  const auto call = single([](const auto& in) { return chain_matmul(in); });
  return {{.name = "two matrices", .inputs = {normal({5, 2}), normal({2, 3})}, .call = call},
          {.name = "three, size 1",
           .inputs = {normal({5, 1}, kFloat64), normal({1, 3}, kFloat64), normal({3, 2}, kFloat64)},
           .call = call}};
}
std::vector<Sample> matrix_power_samples() {
  return {{.name = "batch, fifth power", .inputs = {normal({5, 3, 3}, kFloat64)}, .call = single([](const auto& in) {
                                                                                    return matrix_power(in[0], 5);
                                                                                  })},
          {.name = "size 1", .inputs = {normal({1, 1}, kFloat64)}, .call = single([](const auto& in) {
                                                                     return matrix_power(in[0], 2);
                                                                   })}};
}
std::vector<Sample> kron_samples() {
  const auto call = single([](const auto& in) { return kron(in[0], in[1]); });
  return {
      {.name = "matrices", .inputs = {normal({4, 3}), normal({2, 5})}, .call = call},
      {.name = "vector and matrix, size 1", .inputs = {normal({5}, kFloat64), normal({1, 2}, kFloat64)}, .call = call}};
}
std::vector<Sample> cdist_samples() {
  const auto call = single([](const auto& in) { return cdist(in[0], in[1]); });
  return {{.name = "uneven", .inputs = {normal({5, 3}, kFloat64), normal({7, 3}, kFloat64)}, .call = call},
          {.name = "batch, size 1", .inputs = {normal({2, 1, 3}), normal({2, 5, 3})}, .call = call}};
}

// The order of products with the fewest multiplications: sizes[i] x sizes[i + 1] is matrix i.
struct ChainOrder {
  std::vector<std::vector<int64_t>> cost, split;
  explicit ChainOrder(const std::vector<int64_t>& sizes) {
    const size_t n = sizes.size() - 1;
    cost.assign(n, std::vector<int64_t>(n, 0));
    split = cost;
    for (size_t length = 2; length <= n; ++length) {
      for (size_t first = 0; first + length <= n; ++first) {
        const size_t last = first + length - 1;
        for (size_t at = first; at < last; ++at) {
          const int64_t here = cost[first][at] + cost[at + 1][last] + sizes[first] * sizes[at + 1] * sizes[last + 1];
          if (at > first && here >= cost[first][last]) continue;
          cost[first][last] = here;
          split[first][last] = static_cast<int64_t>(at);
        }
      }
    }
  }
};

Tensor multiply(const std::vector<Tensor>& matrices, const ChainOrder& order, size_t first, size_t last,
                const Where& where) {
  if (first == last) return matrices[first];
  const auto at = static_cast<size_t>(order.split[first][last]);
  return matmul(multiply(matrices, order, first, at, where), multiply(matrices, order, at + 1, last, where), where);
}

Tensor multiply_chain(const char* op, std::vector<Tensor> matrices, bool vectors_at_ends, const Where& where) {
  if (matrices.size() < 2) {
    throw at_line(
        UserError("[" + std::string(op) + "] got " + std::to_string(matrices.size()) + " tensors, needs at least 2"),
        where);
  }
  const bool row = vectors_at_ends && matrices.front().ndim() == 1,
             column = vectors_at_ends && matrices.back().ndim() == 1;
  if (row) matrices.front() = unsqueeze(matrices.front(), 0, where);
  if (column) matrices.back() = unsqueeze(matrices.back(), 1, where);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Shape& shape = matrices[i].shape();
    if (shape.ndim() != 2 || (i > 0 && shape[0] != matrices[i - 1].shape()[1])) {
      throw at_line(ShapeError("[" + std::string(op) + "] tensor " + std::to_string(i) + " is " + shape.str() +
                               ", needed is a matrix" +
                               (i > 0 ? " that fits after " + matrices[i - 1].shape().str() : std::string())),
                    where);
    }
    sizes.push_back(shape[0]);
  }
  sizes.push_back(matrices.back().shape()[1]);
  Tensor product = multiply(matrices, ChainOrder(sizes), 0, matrices.size() - 1, where);
  if (column) product = squeeze(product, 1, where);
  return row ? squeeze(product, 0, where) : product;
}

}  // namespace

constinit OperatorDef multi_dot_op =
    composition("multi_dot", "multi_dot(matrices) -> Tensor", multi_dot_samples, "each");
constinit OperatorDef chain_matmul_op =
    composition("chain_matmul", "chain_matmul(matrices) -> Tensor", chain_matmul_samples, "each");
constinit OperatorDef matrix_power_op =
    composition("matrix_power", "matrix_power(a, n) -> Tensor", matrix_power_samples, "");
constinit OperatorDef kron_op = composition("kron", "kron(a, b) -> Tensor", kron_samples, "each");
constinit OperatorDef cdist_op =
    composition("cdist", "cdist(a, b) -> Tensor", cdist_samples, "", PlacementClass::kCombines);

Tensor multi_dot(const std::vector<Tensor>& tensors, Where where) {
  return multiply_chain("multi_dot", tensors, true, where);
}
Tensor chain_matmul(const std::vector<Tensor>& matrices, Where where) {
  return matrices.size() == 1 ? matrices[0] : multiply_chain("chain_matmul", matrices, false, where);
}

Tensor matrix_power(const Tensor& a, int64_t n, Where where) {
  const Shape& shape = a.shape();
  if (shape.ndim() < 2 || shape.back() != shape[shape.ndim() - 2]) {
    throw at_line(ShapeError("[matrix_power] needs square matrices, got " + shape.str()), where);
  }
  if (n < 0) {
    throw at_line(UserError("[matrix_power] the exponent is " + std::to_string(n) + ", must not be negative"), where);
  }
  if (n == 0) {
    const GraphScope graph(Graph(IntrusivePtr<GraphCore>(&a.value()->graph())));
    const Tensor one = eye(shape.back(), {.mesh = a.mesh(), .dtype = a.dtype()}, where);
    return expand(one, {shape.begin(), shape.end()}, where);
  }
  if (n == 3) return matmul(matmul(a, a, where), a, where);
  Tensor square = a, power;
  for (int64_t rest = n;; square = matmul(square, square, where)) {
    if (rest % 2 == 1) power = power.defined() ? matmul(power, square, where) : square;
    rest /= 2;
    if (rest == 0) return power;
  }
}

Tensor kron(const Tensor& a, const Tensor& b, Where where) {
  const int64_t ndim = std::max(a.ndim(), b.ndim());
  if (2 * ndim > kMaxDims) {
    throw at_line(ShapeError("[kron] operands are " + a.shape().str() + " and " + b.shape().str() +
                             ", allowed are at most " + std::to_string(kMaxDims / 2) + " dims"),
                  where);
  }
  // a's dims stand before b's: [a0, b0, a1, b1, ...]; missing ones in front are 1.
  Tensor spread_a = a, spread_b = b;
  for (int64_t d = a.ndim(); d < ndim; ++d) spread_a = unsqueeze(spread_a, 0, where);
  for (int64_t d = b.ndim(); d < ndim; ++d) spread_b = unsqueeze(spread_b, 0, where);
  std::vector<int64_t> shape;
  for (int64_t d = 0; d < ndim; ++d) {
    shape.push_back(spread_a.shape()[2 * d] * spread_b.shape()[2 * d]);
    spread_a = unsqueeze(spread_a, 2 * d + 1, where);
    spread_b = unsqueeze(spread_b, 2 * d, where);
  }
  return reshape(mul(spread_a, spread_b, where), shape, where);
}

Tensor cdist(const Tensor& a, const Tensor& b, Where where) {
  if (a.ndim() < 2 || b.ndim() < 2 || a.shape().back() != b.shape().back() ||
      std::max(a.ndim(), b.ndim()) == kMaxDims) {
    throw at_line(ShapeError("[cdist] operands are " + a.shape().str() + " and " + b.shape().str() +
                             ", needed are [..., P, M] and [..., R, M]"),
                  where);
  }
  const Tensor squares =
      sum(square(sub(unsqueeze(a, -2, where), unsqueeze(b, -3, where), where), where), {-1}, false, {}, where);
  // The root has no derivative at 0; the gradient there is 0.
  const Tensor same = eq(squares, 0, where);
  return dtorch::where(same, 0.0, sqrt(dtorch::where(same, 1.0, squares, where), where), where);
}

}  // namespace dtorch
