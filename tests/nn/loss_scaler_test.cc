// Loss scaling: an overflow leaves a step out and nothing else, on every layout, without a read.
#include "nn/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using nn::LossScaler;
using nn::Parameter;

class LossScalerTest : public KernelTest {
 protected:
  struct Run {
    HostTensor value;
    std::vector<double> scales, norms;
    LossScaler::State state;
  };
  // A step for each gradient (times the scale); infinity and NaN are planted into one element of it.
  template <class Optimizer, class Options>
  static Run run(const Layout& layout, const Options& options, const std::vector<double>& gradients) {
    Parameter w(distribute(normal({5, 3}, kFloat32, 1), layout));
    Optimizer optimizer({w}, options);
    LossScaler scaler(layout.mesh(), {.initial = 1024, .growth_interval = 2});
    Run run;
    for (double gradient : gradients) {
      const double scale = scaler.state().scale;
      std::vector<double> values(15, 1.0 * scale);
      values[7] = gradient * scale;
      w.set_grad(distribute(HostTensor::of<double>({5, 3}, values).to(kFloat32), layout));
      const Tensor norm = nn::clip_grad_norm({w}, 2.0, {.loss_scale = scaler.scale()});
      scaler.step(optimizer, norm);
      optimizer.zero_grad();
      run.scales.push_back(scale);
      run.norms.push_back(norm.item<double>());
    }
    run.value = w.value().to_host();
    run.state = scaler.state();
    return run;
  }
  // What the optimizer does with the good gradients alone, without a scale.
  template <class Optimizer, class Options>
  static HostTensor without_scale(const Layout& layout, const Options& options, const std::vector<double>& gradients) {
    Parameter w(distribute(normal({5, 3}, kFloat32, 1), layout));
    Optimizer optimizer({w}, options);
    for (double gradient : gradients) {
      std::vector<double> values(15, 1.0);
      values[7] = gradient;
      w.set_grad(distribute(HostTensor::of<double>({5, 3}, values).to(kFloat32), layout));
      nn::clip_grad_norm({w}, 2.0);
      optimizer.step();
      optimizer.zero_grad();
    }
    return w.value().to_host();
  }
  static std::vector<Layout> layouts() {
    return {Layout::replicated(cpu_mesh({1})), Layout(cpu_mesh({3}), {Shard(0)}, 2),
            Layout(cpu_mesh({2, 2}), {Shard(1), Replicate()}, 2)};
  }
};

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

TEST_F(LossScalerTest, AStepWithAnOverflowChangesNothingButTheScale) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.str());
    const Run adamw = run<optim::AdamW>(layout, optim::AdamWOptions{.lr = 0.1}, {kInfinity, 0.5, kNan, 2.0, 1.0});
    EXPECT_EQ(difference(adamw.value,
                         without_scale<optim::AdamW>(layout, optim::AdamWOptions{.lr = 0.1}, {0.5, 2.0, 1.0}), 1e-6),
              "");
    EXPECT_EQ(adamw.state.steps, 3);
    const optim::SGDOptions momentum{.lr = 0.1, .momentum = 0.9};
    const Run sgd = run<optim::SGD>(layout, momentum, {kNan, 0.5, 2.0, kInfinity, 1.0});
    EXPECT_EQ(difference(sgd.value, without_scale<optim::SGD>(layout, momentum, {0.5, 2.0, 1.0}), 1e-6), "");
    const Run nothing = run<optim::SGD>(layout, momentum, {kNan, kInfinity});
    EXPECT_EQ(difference(nothing.value, normal({5, 3}, kFloat32, 1), 0), "");
  }
}

TEST_F(LossScalerTest, TheScaleShrinksAtAnOverflowAndGrowsAfterGoodSteps) {
  for (const Layout& layout : layouts()) {
    const Run got = run<optim::SGD>(layout, optim::SGDOptions{}, {1, 1, 1, kInfinity, 1, kNan, 1, 1, 1});
    EXPECT_EQ(got.scales, (std::vector<double>{1024, 1024, 2048, 2048, 1024, 1024, 512, 512, 1024}));
    EXPECT_EQ(got.state.scale, 1024);
    EXPECT_EQ(got.state.good_steps, 1);
    EXPECT_EQ(got.norms[0], std::sqrt(15.0f)) << "the norm is the one without the scale";
  }
}

TEST_F(LossScalerTest, NothingIsReadOnTheWay) {
  const Layout layout(cpu_mesh({2}), {Shard(0)}, 2);
  Parameter w(distribute(normal({5, 3}, kFloat32, 1), layout));
  optim::AdamW optimizer({w});
  LossScaler scaler(layout.mesh());
  const int64_t before = client().stats().reads;
  for (int step = 0; step < 3; ++step) {
    w.set_grad(distribute(HostTensor::full({5, 3}, 1.0).to(kFloat32), layout));
    scaler.step(optimizer, nn::clip_grad_norm({w}, 1.0, {.loss_scale = scaler.scale()}));
  }
  EXPECT_EQ(client().stats().reads, before);
}

// Asked for after every step, looked at after the last one.
TEST_F(LossScalerTest, AStateIsThatOfItsMomentHoweverLateItIsRead) {
  const Layout layout(cpu_mesh({2}), {Shard(0)}, 2);
  Parameter w(distribute(normal({5, 3}, kFloat32, 1), layout));
  optim::AdamW optimizer({w});
  LossScaler scaler(layout.mesh(), {.initial = 8, .growth_interval = 2});
  std::vector<LossScaler::StateFuture> states = {scaler.state_async()};
  for (double gradient : {1.0, kInfinity, 1.0, 1.0, kNan}) {
    w.set_grad(distribute(HostTensor::full({5, 3}, gradient).to(kFloat32), layout));
    scaler.step(optimizer, nn::clip_grad_norm({w}, 1.0, {.loss_scale = scaler.scale()}));
    states.push_back(scaler.state_async());
  }
  std::vector<std::vector<double>> found;
  for (const LossScaler::StateFuture& future : states) {
    const LossScaler::State state = future.get();
    found.push_back({state.scale, static_cast<double>(state.good_steps), static_cast<double>(state.steps)});
  }
  EXPECT_EQ(found,
            (std::vector<std::vector<double>>{{8, 0, 0}, {8, 1, 1}, {4, 0, 1}, {4, 1, 2}, {8, 0, 3}, {4, 0, 3}}));
}

// Divided by the scale in float16 a gradient would vanish again, which is what the scale is there against.
TEST_F(LossScalerTest, Float16ParametersAreRefusedAndFloat32OnesComputedWithInFloat16KeepSmallGradients) {
  const Layout layout(cpu_mesh({2}), {Shard(0)}, 1);
  const double small = std::ldexp(1.0, -30);  // float16 ends at 2^-24
  Parameter narrow(distribute(HostTensor::full({4}, 1.0).to(kFloat16), layout));
  optim::SGD refused({narrow}, {.lr = 1});
  LossScaler scaler(layout.mesh(), {.initial = 65536});
  narrow.set_grad(distribute(HostTensor::full({4}, 1.0).to(kFloat16), layout));
  EXPECT_THROW(nn::clip_grad_norm({narrow}, 1.0, {.loss_scale = scaler.scale()}), UserError);
  EXPECT_THROW(scaler.step(refused, scaler.scale()), UserError);

  Parameter master(distribute(HostTensor::full({4}, 0.0).to(kFloat32), layout));
  master.with_use_dtype(kFloat16);
  optim::SGD optimizer({master}, {.lr = 1});
  const Tensor loss = (master.use().to(kFloat32) * (small / 4)).sum();
  backward({loss}, {scaler.scale_for(loss)});
  scaler.step(optimizer, nn::clip_grad_norm({master}, 1.0, {.loss_scale = scaler.scale()}));
  EXPECT_EQ(master.value().to_host().to_vector<double>(), std::vector<double>(4, -small / 4));
}

TEST_F(LossScalerTest, ItsStateGoesOnWhereItWasAndParametersMayBeOnOtherMeshes) {
  const DeviceMesh home = cpu_mesh({2}), other("cpu", {2}, {4, 5});
  Parameter a(distribute(HostTensor::full({4}, 1.0), home, {Shard(0)})),
      b(distribute(HostTensor::full({4}, 1.0), other, {Shard(0)}));
  optim::SGD optimizer({a, b}, {.lr = 1});
  LossScaler scaler(home);
  scaler.load_state({.scale = 4, .good_steps = 3, .steps = 9});
  const auto give = [&](double of_b) {
    a.set_grad(distribute(HostTensor::full({4}, 4.0), home, {Shard(0)}));
    b.set_grad(distribute(HostTensor::full({4}, of_b), other, {Shard(0)}));
    scaler.step(optimizer, nn::clip_grad_norm({a, b}, 1e9, {.loss_scale = scaler.scale()}));
  };
  give(kInfinity);
  EXPECT_EQ(a.value().to_host().to_vector<double>(), std::vector<double>(4, 1.0));
  EXPECT_EQ(scaler.state().scale, 2);
  EXPECT_EQ(scaler.state().good_steps, 0);
  give(2.0);
  EXPECT_EQ(a.value().to_host().to_vector<double>(), std::vector<double>(4, -1.0));
  EXPECT_EQ(b.value().to_host().to_vector<double>(), std::vector<double>(4, 0.0));
  EXPECT_EQ(scaler.state().steps, 10);
  EXPECT_THROW(LossScaler(home, {.initial = 0}), UserError);
}

}  // namespace
}  // namespace dtorch::test
