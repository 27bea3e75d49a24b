// User-facing random values beyond rand, randn and randint: the same bits on every layout. Words, argument order and
// defaults are PyTorch's. All throw at the call.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/create/functions.h"
#include "runtime/client/tensor.h"

namespace dtorch {

// Values are functions of (seed of the Graph, number of the random call, global element number). None has a gradient.

Tensor normal(double mean, double std, const Shape& shape, const TensorOptions& options = {},
              Where where = Where::current());
// mean + std z with broadcasting; both Partial(sum) give Partial(sum).
Tensor normal(const Tensor& mean, const Tensor& std, Where where = Where::current());
Tensor normal(const Tensor& mean, double std, Where where = Where::current());
Tensor normal(double mean, const Tensor& std, Where where = Where::current());
// In [low, high).
Tensor uniform(double low, double high, const Shape& shape, const TensorOptions& options = {},
               Where where = Where::current());
// Density rate exp(-rate x).
Tensor exponential(double rate, const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
// -log(-log(u)) with u uniform in (0, 1).
Tensor gumbel(const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
// 1 with probability p, else 0: of any dtype; or, element by element, of probabilities p and their dtype.
Tensor bernoulli(double p, const Shape& shape, const TensorOptions& options = {}, Where where = Where::current());
Tensor bernoulli(const Tensor& p, Where where = Where::current());
// Counts with these expected values, of their dtype.
Tensor poisson(const Tensor& rate, Where where = Where::current());
// A permutation of 0 .. n - 1, int64 without a dtype.
Tensor randperm(int64_t n, const TensorOptions& options = {}, Where where = Where::current());
Tensor randint_like(const Tensor& other, int64_t low, int64_t high, std::optional<DType> dtype = {},
                    Where where = Where::current());
Tensor randint_like(const Tensor& other, int64_t high, std::optional<DType> dtype = {}, Where where = Where::current());

// Class numbers (int64) drawn from rows of weights [C] or [N, C], which need not sum to 1: [num_samples] or [N,
// num_samples]. Without replacement no class is drawn twice. Sharded classes are gathered. Negative or infinite
// weights, and rows with too few classes of positive weight, are errors of the kernel.
Tensor multinomial(const Tensor& probs, int64_t num_samples, bool replacement = false, Where where = Where::current());
// One class number (int64) a row of probabilities or, with probs undefined, of logits: [..., C] -> [...]. C may be
// sharded: one candidate a device and row travels.
Tensor categorical(const Tensor& probs, const Tensor& logits = {}, Where where = Where::current());

// `steps` numbers from start to end, both included; logspace: base to their power. float32 without a dtype.
Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options = {},
                Where where = Where::current());
Tensor logspace(double start, double end, int64_t steps, double base = 10.0, const TensorOptions& options = {},
                Where where = Where::current());

}  // namespace dtorch
