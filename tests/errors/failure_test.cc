// What fails while it runs: the failure travels through what depends on it to whoever reads that, and to nobody else.
#include <stdexcept>

#include "tests/errors/failing_operator.h"
#include "tests/errors/wrong_call.h"
#include "tests/support/fake_device.h"

namespace dtorch::test {
namespace {

using Failure = WrongCallTest;

class KernelFailure : public WrongCallTest {
 protected:
  void SetUp() override {
    WrongCallTest::SetUp();
    if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
  }
};

Tensor on_four(const Shape& shape) { return distribute(iota(shape), cpu_mesh({4}), {Shard(0)}); }

TEST_F(Failure, AThrowingKernelIsReportedWithOperatorNodeDeviceAndLine) {
  const Tensor x = on_four({8, 3});
  const std::string line = SourceLine{__FILE__, __LINE__ + 1}.str();
  const Tensor y = fail_on(x, 2);
  expect_error<RuntimeFault>([&] { y.to_host(); }, {"fail_on", "deliberate", "device 2", "node 1", line});
}

TEST_F(Failure, AFailureGoesWithTheValueThroughCommunication) {
  const Tensor x = on_four({8, 3});
  const Tensor y = fail_on(x, 1).redistribute({Shard(1)}).redistribute({Replicate()});
  expect_error<RuntimeFault>([&] { y.to_host(); }, {"fail_on", "device 1"});
  // Also to the parts of devices whose own kernel has run.
  expect_error<RuntimeFault>([&] { y.to_host_local(3); }, {"fail_on", "device 1"});
}

// How many rows would have come from a device that failed nobody knows; nobody waits for them either.
TEST_F(KernelFailure, AFailureGoesThroughAnExchangeOfRowsThatDependOnData) {
  const DeviceMesh mesh = cpu_mesh({4}, {"ep"});
  const auto split = [&](const Shape& shape) { return distribute(iota(shape), mesh, {Shard(0)}).to(kFloat64); };
  const auto through_experts = [&](const Tensor& x, const Tensor& w2) {
    return expert_parallel(x, split({8, 4}), split({4, 2, 3}), split({4, 2, 3}), w2);
  };
  const Tensor x = split({8, 3}), w2 = split({4, 3, 2});
  expect_error<RuntimeFault>([&] { through_experts(fail_on(x, 1), w2).to_host(); }, {"fail_on", "device 1"});
  expect_error<RuntimeFault>([&] { through_experts(fail_on(x, 1), w2).to_host_local(3); }, {"fail_on", "device 1"});
  expect_error<RuntimeFault>([&] { through_experts(x, fail_on(w2, 2)).to_host(); }, {"fail_on", "device 2"});
  EXPECT_EQ(through_experts(fail_on(x, -1), w2).to_host().shape(), Shape({8, 3}));
}

TEST_F(KernelFailure, MemoryThatIsShortInARedistributionIsReportedWithItsLine) {
  if (on_fake_devices()) GTEST_SKIP() << "results of fake accelerators have memory of their own, those of expand too";
  // Elements that share one place take no memory where they are, and more than there is where they are wanted.
  const Tensor x = ones({2, 1}, {.mesh = DeviceMesh("cpu", {2}, {0, 1}), .placements = {Shard(0)}});
  const Tensor huge = expand(x, {2, int64_t{1} << 44});
  const std::string line = SourceLine{__FILE__, __LINE__ + 1}.str();
  const Tensor all = huge.redistribute({Replicate()});
  expect_error<RuntimeFault>([&] { slice(all, 1, 0, 2).to_host(); }, {"redistribute", "node 0", "device ", line});
}

TEST_F(Failure, WhatDoesNotDependOnAFailureIsRead) {
  const Tensor x = on_four({8, 3});
  const Tensor failed = fail_on(x, 0);
  const Tensor good = fail_on(x, -1).redistribute({Replicate()});
  EXPECT_EQ(check_tensor(good, iota({8, 3}), 0), "");
  expect_error<RuntimeFault>([&] { failed.to_host(); }, {"fail_on", "device 0"});
}

TEST_F(Failure, TheFirstOfTwoFailuresIsReported) {
  const Tensor x = on_four({8, 3});
  const std::string line = SourceLine{__FILE__, __LINE__ + 1}.str();
  const Tensor first = fail_on(x, 3);
  const Tensor second = fail_on(first, 3);
  expect_error<RuntimeFault>([&] { second.to_host(); }, {"fail_on", "deliberate", line});
}

TEST_F(Failure, AFutureOfAFailedValueThrowsWhenItIsAsked) {
  const TensorFuture future = fail_on(on_four({8, 3}), 1).to_host_async();
  future.wait();
  expect_error<RuntimeFault>([&] { future.get(); }, {"fail_on", "device 1"});
}

TEST_F(Failure, AFailureThatNobodyReadsIsThrownBySynchronize) {
  const Tensor y = fail_on(on_four({8, 3}), 1);
  expect_error<RuntimeFault>([] { client().synchronize(); }, {"fail_on", "device 1"});
  EXPECT_NO_THROW(client().synchronize());
}

TEST_F(Failure, AThrowingCallbackSurfacesAtTheNextRead) {
  const Tensor x = on_four({8, 3});
  const TensorFuture future = x.to_host_async();
  future.then([](const HostTensor&) { throw std::runtime_error("thrown by a callback"); });
  // The callback runs on a thread of its own: a read may still come before it, synchronize waits for it or a later one
  // throws.
  bool thrown = false;
  for (int i = 0; i < 10000 && !thrown; ++i) {
    try {
      x.to_host();
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("thrown by a callback"), std::string::npos) << error.what();
      thrown = true;
    }
  }
  EXPECT_TRUE(thrown);
}

TEST_F(KernelFailure, AnIdOutsideTheTableIsReportedWithOperatorNodeDeviceAndLine) {
  const Tensor ids =
      from_host(HostTensor::of<int64_t>({4}, {0, 1, 2, 6}), {.mesh = cpu_mesh({4}), .placements = {Shard(0)}});
  const Tensor table = distribute(iota({6, 2}), cpu_mesh({4}), {Replicate()});
  const std::string line = SourceLine{__FILE__, __LINE__ + 1}.str();
  const Tensor rows = embedding(ids, table);
  expect_error<RuntimeFault>([&] { rows.to_host(); }, {"embedding", "6", "device 3", "node 1", line});
}

TEST_F(KernelFailure, ATargetOutsideTheClassesIsReported) {
  const Tensor logits = on_four({4, 3});
  const Tensor targets =
      from_host(HostTensor::of<int64_t>({4}, {0, 9, 2, 1}), {.mesh = cpu_mesh({4}), .placements = {Shard(0)}});
  const std::string line = SourceLine{__FILE__, __LINE__ + 1}.str();
  const Tensor loss = cross_entropy(logits, targets);
  expect_error<RuntimeFault>([&] { loss.item<float>(); }, {"cross_entropy", "9", "device 1", line});
}

TEST_F(KernelFailure, AFailureInBackwardReportsTheLineOfItsOperator) {
  const Tensor x = on_four({8, 3}).requires_grad_();
  const Tensor y = fail_on(x.detach(), 2);
  const Tensor loss = sum(x * y);
  loss.backward();
  expect_error<RuntimeFault>([&] { x.grad().to_host(); }, {"fail_on", "device 2"});
}

// --- conversions are off
TEST_F(KernelFailure, WithoutImplicitRedistributionACombinedReductionIsRefused) {
  const Tensor x = on_four({8, 3});
  client().set_implicit_redistribution(false);
  expect_error<PlacementError>([&] { sum(x); }, {"[sum]", HERE});
  EXPECT_NO_THROW(sum(x, {1}));
  client().set_implicit_redistribution(true);
  EXPECT_NO_THROW(sum(x).to_host());
}

TEST_F(KernelFailure, WithoutImplicitRedistributionBackwardStillReduces) {
  const Tensor w = distribute(iota({3, 3}), cpu_mesh({4}), {Replicate()}).requires_grad_();
  const Tensor x = on_four({8, 3});
  const Tensor loss = sum_pending(matmul(x, w), {}).full_tensor();
  client().set_implicit_redistribution(false);
  loss.backward();
  EXPECT_EQ(w.grad().placements(), Placements{Replicate()});
  client().set_implicit_redistribution(true);
}

}  // namespace
}  // namespace dtorch::test
