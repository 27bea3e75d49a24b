// User-facing products beyond matmul and linear. Words, argument order and defaults are PyTorch's. All throw at the
// call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// As matmul, for operands of these ranks only: [M, K] x [K, N], [B, M, K] x [B, K, N], [M, K] x [K], [K] x [K] (vdot:
// the same, since there are no complex numbers).
Tensor mm(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor bmm(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor mv(const Tensor& a, const Tensor& v, Where where = Where::current());
Tensor dot(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor vdot(const Tensor& a, const Tensor& b, Where where = Where::current());
// [..., K] x [..., K] -> [a's dims, b's dims] over the last dims.
Tensor inner(const Tensor& a, const Tensor& b, Where where = Where::current());
// [M] x [N] -> [M, N].
Tensor outer(const Tensor& a, const Tensor& b, Where where = Where::current());

// beta c + alpha (a times b); c is broadcast to the product, and not read when beta is 0. addbmm sums the products of
// the batch. Integers take integer numbers.
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1, Number alpha = 1,
             Where where = Where::current());
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& v, Number beta = 1, Number alpha = 1,
             Where where = Where::current());
Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1, Number alpha = 1,
              Where where = Where::current());
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1, Number alpha = 1,
               Where where = Where::current());
Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, Number beta = 1, Number alpha = 1,
            Where where = Where::current());

// Sums over pairs of dims; `dims`: a's last with b's first ones.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2, Where where = Where::current());
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int64_t>& dims_a,
                 const std::vector<int64_t>& dims_b, Where where = Where::current());
// As torch.einsum: any number of operands, "..." for broadcast dims, a letter twice in an operand for its diagonal;
// without "->" the letters that stand once, in alphabetical order. Dims of size 1 are broadcast. Sharding a summed
// letter gives Partial(sum). Operands must have one dtype.
Tensor einsum(const std::string& formula, const std::vector<Tensor>& operands, Where where = Where::current());

// In the order with the fewest multiplications. multi_dot takes vectors as the first and last tensor.
Tensor multi_dot(const std::vector<Tensor>& tensors, Where where = Where::current());
Tensor chain_matmul(const std::vector<Tensor>& matrices, Where where = Where::current());
Tensor matrix_power(const Tensor& a, int64_t n, Where where = Where::current());  // n >= 0
Tensor kron(const Tensor& a, const Tensor& b, Where where = Where::current());    // at most 4 dims
// Along a dim of size 3 (without one: the first); it must not be sharded.
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int64_t> dim = {}, Where where = Where::current());
// Euclidean distances of rows: [..., P, M] and [..., R, M] -> [..., P, R]. The gradient of a distance 0 is 0.
Tensor cdist(const Tensor& a, const Tensor& b, Where where = Where::current());

}  // namespace dtorch
