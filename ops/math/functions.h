// User-facing functions of mathematics: elementwise, matmul, reductions. Words, argument order and defaults are
// PyTorch's, broadcasting and dtype promotion too. All throw ShapeError, DTypeError or PlacementError at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// --- two operands; the second may be a number
// ----------------------------------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor add(const Tensor& a, Number b, Where where = Where::current());
Tensor sub(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor sub(const Tensor& a, Number b, Where where = Where::current());
Tensor sub(Number a, const Tensor& b, Where where = Where::current());
Tensor mul(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor mul(const Tensor& a, Number b, Where where = Where::current());
// True division: integers give float32.
Tensor div(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor div(const Tensor& a, Number b, Where where = Where::current());
Tensor div(Number a, const Tensor& b, Where where = Where::current());
Tensor pow(const Tensor& a, const Tensor& exponent, Where where = Where::current());
Tensor pow(const Tensor& a, Number exponent, Where where = Where::current());
Tensor minimum(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor maximum(const Tensor& a, const Tensor& b, Where where = Where::current());

// Comparisons give bool.
Tensor eq(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor eq(const Tensor& a, Number b, Where where = Where::current());
Tensor ne(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor ne(const Tensor& a, Number b, Where where = Where::current());
Tensor lt(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor lt(const Tensor& a, Number b, Where where = Where::current());
Tensor le(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor le(const Tensor& a, Number b, Where where = Where::current());
Tensor gt(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor gt(const Tensor& a, Number b, Where where = Where::current());
Tensor ge(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor ge(const Tensor& a, Number b, Where where = Where::current());
Tensor logical_and(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor logical_or(const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor logical_not(const Tensor& a, Where where = Where::current());

// --- one operand
// ------------------------------------------------------------------------------------------------------------------------
Tensor neg(const Tensor& x, Where where = Where::current());
Tensor exp(const Tensor& x, Where where = Where::current());
Tensor log(const Tensor& x, Where where = Where::current());
Tensor sqrt(const Tensor& x, Where where = Where::current());
Tensor rsqrt(const Tensor& x, Where where = Where::current());
Tensor tanh(const Tensor& x, Where where = Where::current());
Tensor sigmoid(const Tensor& x, Where where = Where::current());
Tensor relu(const Tensor& x, Where where = Where::current());
// approximate: "none" (with erf) or "tanh".
Tensor gelu(const Tensor& x, const std::string& approximate = "none", Where where = Where::current());
Tensor silu(const Tensor& x, Where where = Where::current());
Tensor abs(const Tensor& x, Where where = Where::current());
// At least one bound.
Tensor clamp(const Tensor& x, std::optional<double> min, std::optional<double> max, Where where = Where::current());
Tensor sin(const Tensor& x, Where where = Where::current());
Tensor cos(const Tensor& x, Where where = Where::current());
Tensor erf(const Tensor& x, Where where = Where::current());
Tensor reciprocal(const Tensor& x, Where where = Where::current());
Tensor square(const Tensor& x, Where where = Where::current());
Tensor sign(const Tensor& x, Where where = Where::current());
Tensor floor(const Tensor& x, Where where = Where::current());
Tensor ceil(const Tensor& x, Where where = Where::current());
Tensor round(const Tensor& x, Where where = Where::current());  // half to even
// x itself when it has that dtype.
Tensor to(const Tensor& x, DType dtype, Where where = Where::current());

// a where condition (bool), else b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, Where where = Where::current());
Tensor where(const Tensor& condition, const Tensor& a, Number b, Where where = Where::current());
Tensor where(const Tensor& condition, Number a, const Tensor& b, Where where = Where::current());
// `value` where mask, else x; x keeps its dtype.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value, Where where = Where::current());

// --- products
// -----------------------------------------------------------------------------------------------------------------------------
// As torch.matmul: [K] x [K], [M, K] x [K, N], batched with broadcasting. Sharding K gives Partial(sum).
Tensor matmul(const Tensor& a, const Tensor& b, Where where = Where::current());
// x [..., K], weight [N, K], bias [N] or undefined -> x weight^T + bias [..., N].
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Where where = Where::current());

// --- reductions: over sharded dims they combine by themselves; the result is Replicate there
// ------------------------------------------------ Integers and bool are summed in int64.
Tensor sum(const Tensor& x, Where where = Where::current());
Tensor sum(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false, std::optional<DType> dtype = {},
           Where where = Where::current());
// As sum, but what each device adds up stays pending as Partial(sum).
Tensor sum_pending(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false,
                   std::optional<DType> dtype = {}, Where where = Where::current());
// Over the global tensor, however unevenly it is sharded.
Tensor mean(const Tensor& x, Where where = Where::current());
Tensor mean(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current());
Tensor amax(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current());
Tensor amin(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current());
Tensor max(const Tensor& x, Where where = Where::current());
Tensor min(const Tensor& x, Where where = Where::current());
// {values, indices}; indices are global, int64, of the first of equal ones. NaN is greater and less than everything.
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false, Where where = Where::current());
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false, Where where = Where::current());
// Without a dim: the index in the flattened tensor.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Where where = Where::current());
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false, Where where = Where::current());

// --- operators
// -----------------------------------------------------------------------------------------------------------------------------
inline Tensor operator+(TensorArg a, TensorArg b) { return add(a.tensor, b.tensor, a.where); }
inline Tensor operator+(TensorArg a, Number b) { return add(a.tensor, b, a.where); }
inline Tensor operator+(Number a, TensorArg b) { return add(b.tensor, a, b.where); }
inline Tensor operator-(TensorArg a, TensorArg b) { return sub(a.tensor, b.tensor, a.where); }
inline Tensor operator-(TensorArg a, Number b) { return sub(a.tensor, b, a.where); }
inline Tensor operator-(Number a, TensorArg b) { return sub(a, b.tensor, b.where); }
inline Tensor operator*(TensorArg a, TensorArg b) { return mul(a.tensor, b.tensor, a.where); }
inline Tensor operator*(TensorArg a, Number b) { return mul(a.tensor, b, a.where); }
inline Tensor operator*(Number a, TensorArg b) { return mul(b.tensor, a, b.where); }
inline Tensor operator/(TensorArg a, TensorArg b) { return div(a.tensor, b.tensor, a.where); }
inline Tensor operator/(TensorArg a, Number b) { return div(a.tensor, b, a.where); }
inline Tensor operator/(Number a, TensorArg b) { return div(a, b.tensor, b.where); }
inline Tensor operator-(TensorArg a) { return neg(a.tensor, a.where); }
// Elementwise: they give a bool Tensor, not a bool.
inline Tensor operator==(TensorArg a, TensorArg b) { return eq(a.tensor, b.tensor, a.where); }
inline Tensor operator==(TensorArg a, Number b) { return eq(a.tensor, b, a.where); }
inline Tensor operator==(Number a, TensorArg b) { return eq(b.tensor, a, b.where); }
inline Tensor operator!=(TensorArg a, TensorArg b) { return ne(a.tensor, b.tensor, a.where); }
inline Tensor operator!=(TensorArg a, Number b) { return ne(a.tensor, b, a.where); }
inline Tensor operator!=(Number a, TensorArg b) { return ne(b.tensor, a, b.where); }
inline Tensor operator<(TensorArg a, TensorArg b) { return lt(a.tensor, b.tensor, a.where); }
inline Tensor operator<(TensorArg a, Number b) { return lt(a.tensor, b, a.where); }
inline Tensor operator<(Number a, TensorArg b) { return gt(b.tensor, a, b.where); }
inline Tensor operator<=(TensorArg a, TensorArg b) { return le(a.tensor, b.tensor, a.where); }
inline Tensor operator<=(TensorArg a, Number b) { return le(a.tensor, b, a.where); }
inline Tensor operator<=(Number a, TensorArg b) { return ge(b.tensor, a, b.where); }
inline Tensor operator>(TensorArg a, TensorArg b) { return gt(a.tensor, b.tensor, a.where); }
inline Tensor operator>(TensorArg a, Number b) { return gt(a.tensor, b, a.where); }
inline Tensor operator>(Number a, TensorArg b) { return lt(b.tensor, a, b.where); }
inline Tensor operator>=(TensorArg a, TensorArg b) { return ge(a.tensor, b.tensor, a.where); }
inline Tensor operator>=(TensorArg a, Number b) { return ge(a.tensor, b, a.where); }
inline Tensor operator>=(Number a, TensorArg b) { return le(b.tensor, a, b.where); }

}  // namespace dtorch
