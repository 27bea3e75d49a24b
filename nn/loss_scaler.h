// Dynamic loss scaling for training in float16: small gradients would vanish there, so the loss is multiplied by a
// scale before backward and the gradients are divided by it afterwards. A step in which one overflowed is left out and
// the scale shrinks; after many good steps it grows. As torch.amp.GradScaler, but decided on the devices: nothing
// waits.
//
//   nn::LossScaler scaler(loss.mesh());
//   backward({loss}, {scaler.scale_for(loss)});
//   Tensor norm = nn::clip_grad_norm(model.parameters(), 1.0, {.loss_scale = scaler.scale()});
//   scaler.step(optimizer, norm);
#pragma once
#include <cstdint>

#include "nn/optim.h"

namespace dtorch::nn {

struct LossScalerOptions {
  double initial = 65536;
  double growth = 2, backoff = 0.5;  // factors of the scale
  int64_t growth_interval = 2000;    // good steps one after the other, before it grows
};

class LossScaler {
 public:
  // Its state lives on `mesh`. Throws UserError: a scale or factor that isn't positive, an interval below 1.
  explicit LossScaler(const DeviceMesh& mesh, const LossScalerOptions& options = {}, Where where = Where::current());
  // A float32 scalar.
  const Tensor& scale() const { return scale_; }
  // The gradient to begin backward with instead of 1, for a scalar loss on any mesh.
  Tensor scale_for(const Tensor& loss, Where where = Where::current()) const;
  // optimizer.step() if `norm` (of the unscaled gradients) is finite, else nothing but a smaller scale. Throws
  // UserError when a parameter is float16 itself: its gradient, divided by the scale, would vanish again. Parameters
  // stay float32 and are computed with in float16 (Parameter::with_use_dtype, LlamaParallel::compute).
  void step(optim::Optimizer& optimizer, const Tensor& norm, Where where = Where::current());

  struct State {
    double scale = 0;
    int64_t good_steps = 0;  // since the scale changed
    int64_t steps = 0;       // that weren't left out: what AdamW corrects its moments by
  };
  State state() const { return state_async().get(); }  // blocks until it is known
  // The state of now, whatever changes later. Doesn't block.
  class StateFuture {
   public:
    State get() const;  // blocks; any thread. Throws RuntimeFault where a step has failed

   private:
    friend class LossScaler;
    TensorFuture scale_, good_steps_, steps_;
  };
  StateFuture state_async(Where where = Where::current()) const;
  void load_state(const State& state, Where where = Where::current());

 private:
  DeviceMesh mesh_;
  LossScalerOptions options_;
  Tensor scale_, good_steps_, steps_;
};

}  // namespace dtorch::nn
