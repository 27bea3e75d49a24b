// Layers on whole (logical) tensors and their parallel forms. Weights are stored [out, in]; a parallel layer differs
// from the plain one in the placements of its parameters and of what it returns, never in its values.
#pragma once
#include <string>

#include "nn/module.h"

namespace dtorch::nn {

struct LayerOptions {
  DeviceMesh mesh = {};        // none: one device
  Placements placements = {};  // of the weight; none: Replicate
  bool bias = true;
  DType dtype = kFloat32;
};

// y = x W^T + b, x [..., in]. Weight and bias start uniform in +-1/sqrt(in).
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, const LayerOptions& options = {}, Where where = Where::current());
  Tensor forward(const Tensor& x, Where where = Where::current()) const;
  Tensor operator()(const Tensor& x, Where where = Where::current()) const { return forward(x, where); }
  Parameter weight, bias;  // bias undefined without one
};

// Rows of weight [count, dim], which starts normal.
class Embedding : public Module {
 public:
  Embedding(int64_t count, int64_t dim, const LayerOptions& options = {}, Where where = Where::current());
  Tensor forward(const Tensor& ids, Where where = Where::current()) const;
  Tensor operator()(const Tensor& ids, Where where = Where::current()) const { return forward(ids, where); }
  Parameter weight;
};

class RMSNorm : public Module {
 public:
  RMSNorm(int64_t dim, double eps = 1e-5, const LayerOptions& options = {}, Where where = Where::current());
  Tensor forward(const Tensor& x, Where where = Where::current()) const;
  Tensor operator()(const Tensor& x, Where where = Where::current()) const { return forward(x, where); }
  Parameter weight;
  double eps;
};

class LayerNorm : public Module {
 public:
  LayerNorm(int64_t dim, double eps = 1e-5, const LayerOptions& options = {}, Where where = Where::current());
  Tensor forward(const Tensor& x, Where where = Where::current()) const;
  Tensor operator()(const Tensor& x, Where where = Where::current()) const { return forward(x, where); }
  Parameter weight, bias;
  double eps;
};

class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {}
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;

 private:
  double p_;
};

// --- parallel on one axis of a mesh
// ----------------------------------------------------------------------------------------------------
struct ParallelOptions {
  DeviceMesh mesh = {};
  std::string axis = "tp";
  bool bias = true;
  DType dtype = kFloat32;
};

// `x` with `placement` on one axis and the other axes as they are.
Tensor with_axis_placement(const Tensor& x, int64_t axis, const Placement& placement, Where where = Where::current());
// weight [out, in] Shard(0) on the axis. x as it comes, Replicate on the axis; result Shard(last).
class ColumnParallelLinear : public Linear {
 public:
  ColumnParallelLinear(int64_t in, int64_t out, const ParallelOptions& options, Where where = Where::current());
};
// x with any placement on the axis is made Replicate first.
class ColumnParallelLinearWithReplicateInput : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
};
// The result is gathered: Replicate.
class ColumnParallelLinearWithReplicateOutput : public ColumnParallelLinear {
 public:
  using ColumnParallelLinear::ColumnParallelLinear;
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
};
// weight [out, in] Shard(1) on the axis, bias Replicate (added once). x Shard(last) on the axis (a Replicate x is
// sliced); result Partial.
class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(int64_t in, int64_t out, const ParallelOptions& options, Where where = Where::current());
};
class RowParallelLinearWithReplicateOutput : public RowParallelLinear {
 public:
  using RowParallelLinear::RowParallelLinear;
  Tensor operator()(const Tensor& x, Where where = Where::current()) const;
};
// weight [count, dim] Shard(0) on the axis (vocabulary-parallel); result Replicate.
class VocabParallelEmbedding : public Embedding {
 public:
  VocabParallelEmbedding(int64_t count, int64_t dim, const ParallelOptions& options, Where where = Where::current());
};

}  // namespace dtorch::nn
