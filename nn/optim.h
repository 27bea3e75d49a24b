// Optimizers, gradient clipping and learning-rate schedules.
// One operator a step for all parameters of one Graph on one mesh with one dtype; old values and state are donated, so
// that a step allocates nothing.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace dtorch::optim {

using nn::Parameter;

// Optimizer state of one parameter: "m" and "v", or "momentum". Logical tensors with the parameter's layout.
using StateTensors = std::map<std::string, Tensor>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates every parameter from its gradient (zero where it has none).
  void step(Where where = Where::current()) { run_step({}, where); }
  // The same where `number` isn't 0 (an int64 scalar tensor, Replicate, on any mesh): the step's number, from 1. Where
  // it is 0 nothing changes. For steps that the devices decide on (nn::LossScaler). steps() counts both kinds.
  void step_numbered(const Tensor& number, Where where = Where::current()) { run_step(number, where); }
  void zero_grad();
  double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  virtual std::vector<std::string> state_names() const = 0;
  // One map a parameter, in the order of parameters(); empty before the first step.
  virtual std::vector<StateTensors> state() const = 0;
  // Takes over state with the layouts of the parameters; throws KeyError / ShapeError, and then nothing has changed.
  virtual void load_state(const std::vector<StateTensors>& state) = 0;

 protected:
  explicit Optimizer(std::vector<Parameter> parameters, double lr);
  virtual void update(const Tensor& number, Where where) = 0;  // number may be undefined: steps() + 1
  void run_step(const Tensor& number, Where where);
  struct Group {
    std::vector<size_t> members;  // indices of parameters of one Graph on one mesh with one dtype
  };
  std::vector<Group> groups() const;
  Tensor gradient_or_zero(const Parameter& parameter, Where where) const;
  void check_state(const std::vector<StateTensors>& state) const;
  std::vector<Parameter> parameters_;
  double lr_;
  int64_t steps_ = 0;
};

struct AdamWOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
};
class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<Parameter> parameters, const AdamWOptions& options = {});
  std::vector<std::string> state_names() const override { return {"m", "v"}; }
  std::vector<StateTensors> state() const override;
  void load_state(const std::vector<StateTensors>& state) override;

 private:
  void update(const Tensor& number, Where where) override;
  AdamWOptions options_;
  std::vector<Tensor> m_, v_;  // empty before the first step
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
class SGD final : public Optimizer {
 public:
  SGD(std::vector<Parameter> parameters, const SGDOptions& options = {});
  std::vector<std::string> state_names() const override;
  std::vector<StateTensors> state() const override;
  void load_state(const std::vector<StateTensors>& state) override;

 private:
  void update(const Tensor& number, Where where) override;
  SGDOptions options_;
  std::vector<Tensor> buffers_;
};

// Learning rate at a step counted from 0. warmup: linear from lr / warmup to lr.
struct Schedule {
  enum class Kind : uint8_t { kConstant, kLinear, kCosine };
  Kind kind = Kind::kConstant;
  double lr = 1e-3;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;   // of kLinear and kCosine
  double final_ratio = 0.1;  // lr at total_steps over lr
  double at(int64_t step) const;
  static Kind kind_from_name(const std::string& name);  // constant | linear | cosine; throws UserError
};

}  // namespace dtorch::optim

namespace dtorch::nn {

struct ClipOptions {
  double eps = 1e-6;  // added to the norm once, as PyTorch does
  // The gradients are so many times too large (a scalar tensor, LossScaler::scale()): they are divided by it, and the
  // norm is the one after that. Undefined: they aren't. A float16 gradient is a UserError then: the small numbers that
  // the scale has kept would vanish in it.
  Tensor loss_scale = {};
};
// Scales the gradients so that their global 2-norm is at most max_norm and returns the norm before (a scalar tensor).
// Parameters may be on different meshes; each element counts once. Parameters without a gradient are left out.
Tensor clip_grad_norm(const std::vector<Parameter>& parameters, double max_norm, const ClipOptions& options = {},
                      Where where = Where::current());

}  // namespace dtorch::nn
