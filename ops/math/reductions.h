// User-facing reductions and running values beyond those of functions.h. Over sharded dims they combine by themselves;
// the result is Replicate there. Words, argument order and defaults are PyTorch's. All throw at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// --- reductions; no dims: all of them
// ------------------------------------------------------------------------------------------------
// Integers and bool are multiplied in int64.
Tensor prod(const Tensor& x, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false, std::optional<DType> dtype = {},
            Where where = Where::current());
// Whether an element, or every one, isn't 0: bool, of uint8 uint8.
Tensor any(const Tensor& x, Where where = Where::current());
Tensor any(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current());
Tensor all(const Tensor& x, Where where = Where::current());
Tensor all(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false, Where where = Where::current());
// {least, largest} of one dim or all.
std::pair<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false,
                                  Where where = Where::current());
// sum((x - mean)^2) / max(0, count - correction), and its root; {that, mean}. In two passes over the global tensor.
Tensor var(const Tensor& x, const std::vector<int64_t>& dims = {}, double correction = 1, bool keepdim = false,
           Where where = Where::current());
Tensor std(const Tensor& x, const std::vector<int64_t>& dims = {}, double correction = 1, bool keepdim = false,
           Where where = Where::current());
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const std::vector<int64_t>& dims = {}, double correction = 1,
                                   bool keepdim = false, Where where = Where::current());
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const std::vector<int64_t>& dims = {}, double correction = 1,
                                   bool keepdim = false, Where where = Where::current());
// (sum |x|^p)^(1/p); p may be infinity, -infinity (the largest and smallest |x|) or 0 (how many aren't 0).
Tensor norm(const Tensor& x, double p = 2, const std::vector<int64_t>& dims = {}, bool keepdim = false,
            std::optional<DType> dtype = {}, Where where = Where::current());
Tensor vector_norm(const Tensor& x, double order = 2, const std::vector<int64_t>& dims = {}, bool keepdim = false,
                   std::optional<DType> dtype = {}, Where where = Where::current());
// norm(a - b, p) of all elements.
Tensor dist(const Tensor& a, const Tensor& b, double p = 2, Where where = Where::current());
// Integers give float32.
Tensor logsumexp(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim = false,
                 Where where = Where::current());
// NaN counts as 0, or not at all.
Tensor nansum(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false,
              std::optional<DType> dtype = {}, Where where = Where::current());
Tensor nanmean(const Tensor& x, const std::vector<int64_t>& dims = {}, bool keepdim = false,
               std::optional<DType> dtype = {}, Where where = Where::current());
Tensor count_nonzero(const Tensor& x, const std::vector<int64_t>& dims = {}, Where where = Where::current());

// --- running values along a dim; a sharded dim stays sharded
// -------------------------------------------------------------------------
// Integers and bool are added and multiplied in int64.
Tensor cumsum(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor cumprod(const Tensor& x, int64_t dim, std::optional<DType> dtype = {}, Where where = Where::current());
Tensor logcumsumexp(const Tensor& x, int64_t dim, Where where = Where::current());
// {values, indices}; indices are global, int64, of the last of equal ones.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim, Where where = Where::current());
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim, Where where = Where::current());
// x[i + 1] - x[i], n times, after joining `prepend` and `append` (may be undefined) to x. bool: whether they differ.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, const Tensor& prepend = {}, const Tensor& append = {},
            Where where = Where::current());

}  // namespace dtorch
