#include "nn/loss_scaler.h"

#include <limits>

#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {

LossScaler::LossScaler(const DeviceMesh& mesh, const LossScalerOptions& options, Where where)
    : mesh_(mesh), options_(options) {
  if (!(options.initial > 0 && options.growth > 0 && options.backoff > 0 && options.growth_interval >= 1))
    throw UserError("[LossScaler] the scale and its factors must be positive, the interval at least 1");
  load_state({.scale = options.initial}, where);
}

Tensor LossScaler::scale_for(const Tensor& loss, Where where) const {
  return to(scale_.redistribute(Layout::replicated(loss.mesh()), where), loss.dtype(), where);
}

void LossScaler::step(optim::Optimizer& optimizer, const Tensor& norm, Where where) {
  for (const Parameter& parameter : optimizer.parameters()) {
    if (parameter.value().dtype() != kFloat16) continue;
    throw UserError("[LossScaler] a parameter " + parameter.shape().str() +
                    " is float16 itself, where unscaled gradients vanish; make it float32 and compute with it in "
                    "float16 (with_use_dtype(kFloat16), LlamaParallel::compute)");
  }
  SourceScope scope(where);
  NoGrad no_grad;
  const Tensor here = norm.redistribute(Layout::replicated(mesh_), where);
  // Neither infinite nor NaN.
  const double most = norm.dtype() == kFloat64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  const Tensor is_good = le(here, most, where);
  const Tensor next = add(steps_, 1, where);
  optimizer.step_numbered(dtorch::where(is_good, next, 0, where), where);
  steps_ = dtorch::where(is_good, next, steps_, where);
  const Tensor good_steps = dtorch::where(is_good, add(good_steps_, 1, where), 0, where);
  const Tensor grows = ge(good_steps, options_.growth_interval, where);
  const Tensor larger = dtorch::where(grows, mul(scale_, options_.growth, where), scale_, where);
  scale_ = dtorch::where(is_good, larger, mul(scale_, options_.backoff, where), where);
  good_steps_ = dtorch::where(grows, 0, good_steps, where);
}

LossScaler::State LossScaler::StateFuture::get() const {
  return {scale_.get().element<double>(0), good_steps_.get().element<int64_t>(0), steps_.get().element<int64_t>(0)};
}

LossScaler::StateFuture LossScaler::state_async(Where where) const {
  StateFuture state;
  state.scale_ = scale_.to_host_async(where);
  state.good_steps_ = good_steps_.to_host_async(where);
  state.steps_ = steps_.to_host_async(where);
  return state;
}

void LossScaler::load_state(const State& state, Where where) {
  SourceScope scope(where);
  NoGrad no_grad;
  const auto scalar = [&](const auto& value, DType dtype) {
    return full({}, value, {.mesh = mesh_, .placements = Placements(mesh_.num_axes(), Replicate()), .dtype = dtype},
                where);
  };
  scale_ = scalar(state.scale, kFloat32);
  good_steps_ = scalar(state.good_steps, kInt64);
  steps_ = scalar(state.steps, kInt64);
}

}  // namespace dtorch::nn
