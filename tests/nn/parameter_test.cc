// Parameters stored split (ZeRO), wider than they are used, or used on another mesh; recomputation.
#include <gtest/gtest.h>

#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using nn::Gather;
using nn::Parameter;

class ParameterTest : public KernelTest {
 protected:
  // Loss sum(x w) over two micro-batches; the gradient of w [5, 3] is the sum of both x's column sums, in every row.
  static HostTensor gradient_of(Parameter& w, const DeviceMesh& mesh, int backwards) {
    for (int i = 0; i < backwards; ++i) {
      const Tensor x = distribute(normal({4, 5}, kFloat64, 10 + static_cast<uint64_t>(i)), mesh, {Shard(0)});
      matmul(x, w.use()).sum().backward();
    }
    const Tensor grad = w.grad();
    EXPECT_EQ(grad.layout(), w.layout());
    return grad.to_host();
  }
};

TEST_F(ParameterTest, EveryStageOfZeroGivesTheGradientOfAWholeParameter) {
  const HostTensor value = normal({5, 3}, kFloat64, 3);
  const DeviceMesh mesh = cpu_mesh({3}, {"dp"});
  Parameter whole(distribute(value, mesh, {Replicate()}));
  const HostTensor want = gradient_of(whole, mesh, 2);
  for (Gather gather : {Gather::kOncePerStep, Gather::kOncePerStepReducing, Gather::kPerUse}) {
    Parameter split(distribute(value, mesh, {Shard(0)}));
    split.with_use_layout(Layout::replicated(mesh), gather);
    EXPECT_EQ(difference(gradient_of(split, mesh, 2), want, 1e-12), "") << static_cast<int>(gather);
    split.zero_grad();
    EXPECT_FALSE(split.grad().defined());
    EXPECT_EQ(difference(gradient_of(split, mesh, 2), want, 1e-12), "") << "after zero_grad";
  }
}

TEST_F(ParameterTest, ANewValueIsGatheredAgain) {
  const DeviceMesh mesh = cpu_mesh({2}, {"dp"});
  for (Gather gather : {Gather::kOncePerStep, Gather::kOncePerStepReducing, Gather::kPerUse}) {
    Parameter w(distribute(HostTensor::of<double>({2}, {1, 2}), mesh, {Shard(0)}));
    w.with_use_layout(Layout::replicated(mesh), gather);
    EXPECT_EQ(w.use().to_host().to_vector<double>(), (std::vector<double>{1, 2}));
    w.set_value(distribute(HostTensor::of<double>({2}, {5, 7}), mesh, {Shard(0)}));
    EXPECT_EQ(w.use().to_host().to_vector<double>(), (std::vector<double>{5, 7}));
  }
}

TEST_F(ParameterTest, MasterWeightsAreUsedNarrowAndGetWideGradients) {
  const DeviceMesh mesh = cpu_mesh({2}, {"dp"});
  Parameter w(distribute(normal({4, 2}, kFloat32, 1), mesh, {Shard(0)}));
  w.with_use_layout(Layout::replicated(mesh)).with_use_dtype(kBFloat16);
  const Tensor used = w.use();
  EXPECT_EQ(used.dtype(), kBFloat16);
  used.sum().backward();
  EXPECT_EQ(w.grad().dtype(), kFloat32);
  EXPECT_EQ(w.grad().to_host().to_vector<double>(), std::vector<double>(8, 1.0));
}

TEST_F(ParameterTest, AWeightTiedToAnotherStageCollectsItsGradient) {
  const DeviceMesh here = cpu_mesh({2}, {"dp"}), there("cpu", {2}, {4, 5}, {"dp"});
  Parameter w(distribute(HostTensor::of<double>({3}, {1, 2, 3}), here, {Replicate()}));
  w.use().sum().backward();
  (w.use_on(Layout::replicated(there)) * 2.0).sum().backward();
  EXPECT_EQ(w.grad().to_host().to_vector<double>(), (std::vector<double>{3, 3, 3}));
}

TEST_F(ParameterTest, RecomputationGivesTheSameGradientsAndRandomNumbers) {
  const DeviceMesh mesh = cpu_mesh({2}, {"dp"});
  const HostTensor value = normal({3, 3}, kFloat64, 2), input = normal({4, 3}, kFloat64, 5);
  const auto run = [&](bool recompute) {
    manual_seed(9);
    Parameter w(distribute(value, mesh, {Replicate()}));
    Tensor x = distribute(input, mesh, {Shard(0)}).requires_grad_();
    const auto part = [&w](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{dropout(tanh(matmul(in[0], w.use())), 0.5)};
    };
    const Tensor y = recompute ? nn::checkpoint(part, {x})[0] : part({x})[0];
    const Tensor after = dropout(y, 0.5);  // draws from the same sequence
    after.sum().backward();
    return std::vector<HostTensor>{after.to_host(), x.grad().to_host(), w.grad().to_host()};
  };
  const std::vector<HostTensor> kept = run(false), again = run(true);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(difference(again[i], kept[i], 0), "") << i;
}

}  // namespace
}  // namespace dtorch::test
