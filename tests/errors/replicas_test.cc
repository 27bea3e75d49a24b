// The debug level that compares replicas after every operator.
#include "tests/errors/diverging_operator.h"
#include "tests/errors/wrong_call.h"

namespace dtorch::test {
namespace {

class CheckReplicas : public WrongCallTest {
 protected:
  void SetUp() override {
    WrongCallTest::SetUp();
    client().set_check_replicas(true);
  }
  void TearDown() override {
    client().set_check_replicas(false);
    WrongCallTest::TearDown();
  }
};

TEST_F(CheckReplicas, FindsTheOperatorOutputAndDeviceThatDiffer) {
  const Tensor x = on_dp_tp({4, 6}, Replicate(), Replicate());
  const std::string line = SourceLine{__FILE__, __LINE__ + 1}.str();
  expect_error<RuntimeFault>([&] { diverge_on(x, 2); },
                             {"[diverge_on] replicas differ: output 0, float32 [4, 6] {Replicate(), Replicate()}",
                              "on device 2 than on device 0", line});
  // Nothing wrong where no device is named.
  EXPECT_EQ(check_tensor(diverge_on(x, -1), iota({4, 6}), 0), "");
}

TEST_F(CheckReplicas, ComparesReplicasOfEachShardWithEachOther) {
  // dp splits the rows, tp holds copies: device 3 is compared with device 2.
  const Tensor x = on_dp_tp({4, 6}, Shard(0), Replicate());
  expect_error<RuntimeFault>([&] { diverge_on(x, 3); }, {"[diverge_on]", "on device 3 than on device 2"});
  expect_error<RuntimeFault>([&] { diverge_on(x, 0); }, {"[diverge_on]", "on device 1 than on device 0"});
  diverge_on(on_dp_tp({4, 6}, Shard(0), Shard(1)), 3);  // no copies, nothing to compare
}

TEST_F(CheckReplicas, LetsCorrectProgramsRunWithBackward) {
  if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
  Tensor w = on_dp_tp({6, 3}, Replicate(), Shard(1)).requires_grad_();
  const Tensor x = on_dp_tp({4, 6}, Shard(0), Replicate());
  const Tensor loss = sum(relu(matmul(x, w)));
  loss.backward();
  EXPECT_EQ(w.grad().placements(), w.placements());
  EXPECT_EQ(loss.item<float>(), sum(relu(matmul(x, w))).item<float>());
}

TEST_F(CheckReplicas, DoesNotCutWhatExplainShows) {
  client().set_explain(true);
  const Tensor x = on_dp_tp({4, 6}, Replicate(), Replicate());
  const std::string text = explain(diverge_on(diverge_on(x, -1), -1));
  client().set_explain(false);
  EXPECT_NE(text.find("%3 = diverge_on(%2)"), std::string::npos) << text;
}

TEST_F(CheckReplicas, WithoutItADifferenceIsNotNoticed) {
  client().set_check_replicas(false);
  const Tensor y = diverge_on(on_two({4}, Replicate()), 1);
  EXPECT_FALSE(y.to_host_local(0).equals(y.to_host_local(1)));
}

}  // namespace
}  // namespace dtorch::test
