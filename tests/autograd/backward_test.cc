// What backward records: segments, accumulation, what is walked, kept and freed.
#include "runtime/autograd/backward.h"

#include "tests/autograd/autograd_test.h"

namespace dtorch::testing {
namespace {

const Placements kWhole = {Replicate(), Replicate()};

using BackwardTest = AutogradTest;

TEST_F(BackwardTest, GivesEveryLeafAGradientOfItsShapeDtypeAndPlacements) {
  Tensor x = leaf({4, 6}, {Shard(0), Replicate()}), w = leaf({6, 8}, {Replicate(), Shard(1)}),
         unused = leaf({3}, kWhole);
  EXPECT_FALSE(x.grad().defined());
  matmul(x, w).sum().backward();
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(x.grad().placements(), x.placements());
  EXPECT_EQ(w.grad().placements(), w.placements());
  EXPECT_EQ(w.grad().dtype(), kFloat32);
  EXPECT_FALSE(x.grad().requires_grad());
  EXPECT_FALSE(unused.grad().defined());
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(BackwardTest, NeedsAGradientForAnOutputThatIsNoScalar) {
  Tensor x = leaf({4}, kWhole);
  Tensor y = x * 2.0;
  EXPECT_THROW(y.backward(), UserError);
  EXPECT_THROW(y.backward(constant({5}, kWhole)), ShapeError);
  EXPECT_THROW(constant({}, kWhole).backward(), UserError);
  y.backward(constant({4}, {Shard(0), Replicate()}));
  EXPECT_EQ(x.grad().shape(), Shape{4});
  EXPECT_THROW(backward({}), UserError);
  EXPECT_THROW(backward({y}, {y, y}), UserError);
}

TEST_F(BackwardTest, RunsASecondTimeOnlyWithRetainGraph) {
  Tensor x = leaf({4}, kWhole);
  Tensor y = exp(x).sum();
  backward({y}, {}, {}, {.retain_graph = true});
  y.backward();
  try {
    y.backward();
    FAIL() << "no error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("retain_graph"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("backward_test.cc"), std::string::npos) << e.what();
  }
}

TEST_F(BackwardTest, FreesWhatTheTapeHasSaved) {
  Tensor x = leaf({4}, kWhole);
  Tensor loss;
  {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) y = exp(y);
    loss = y.sum();
  }
  client_.synchronize();
  EXPECT_EQ(runtime_->num_live(), 12u);  // x, the saved results, the loss
  loss.backward();
  client_.synchronize();
  EXPECT_EQ(runtime_->num_live(), 3u);  // x, the loss, the gradient
}

TEST_F(BackwardTest, AddsTheGradientsOfAWeightThatIsUsedTwice) {
  Tensor w = leaf({4, 4}, kWhole), x = constant({4, 4}, kWhole);
  matmul(matmul(x, w), w).sum().backward();
  EXPECT_EQ(w.grad().shape(), w.shape());
  EXPECT_EQ(count("add"), 1);
}

TEST_F(BackwardTest, AccumulatesOverSeveralPasses) {
  Tensor w = leaf({4}, kWhole);
  exp(w).sum().backward();
  const IntrusivePtr<Value> first = w.grad().value();
  exp(w).sum().backward();
  EXPECT_EQ(count("add"), 1);
  EXPECT_FALSE(w.grad().value() == first);
}

TEST_F(BackwardTest, KeepsGradientsOfInnerTensorsOnRequest) {
  Tensor x = leaf({4}, kWhole);
  Tensor y = exp(x), z = exp(y);
  y.retain_grad();
  z.sum().backward();
  EXPECT_TRUE(y.grad().defined());
  EXPECT_FALSE(z.grad().defined());
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(y.is_leaf());
}

TEST_F(BackwardTest, WalksOnlyWhatLiesBetweenOutputsAndInputs) {
  Tensor x = leaf({4}, kWhole), other = leaf({4}, kWhole);
  Tensor y = exp(x), z = mul(y, sqrt(other));
  const int64_t before = count("mul");
  std::vector<Tensor> found = gradients({z.sum()}, {}, {y, x});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].shape(), y.shape());
  EXPECT_EQ(found[1].shape(), x.shape());
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(other.grad().defined());
  EXPECT_GT(count("mul"), before);
  // The square root's gradient (a division) wasn't needed.
  EXPECT_EQ(count("div"), 0);
  EXPECT_FALSE(gradients({exp(x).sum()}, {}, {other})[0].defined());
}

TEST_F(BackwardTest, AccumulatesIntoChosenInputsAlone) {
  Tensor x = leaf({4}, kWhole), other = leaf({4}, kWhole);
  backward({mul(x, other).sum()}, {}, {x});
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(other.grad().defined());
}

TEST_F(BackwardTest, RunsSegmentsOneAfterTheOther) {
  Tensor x = leaf({4}, kWhole);
  Tensor sent = exp(x);
  Tensor received = sent.detach().requires_grad_();
  exp(received).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  sent.backward(received.grad());
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(BackwardTest, TakesSeveralOutputsAtOnce) {
  Tensor x = leaf({4}, kWhole);
  Tensor shared = exp(x);
  const int64_t before = count("exp");
  backward({shared.sum(), shared}, {Tensor(), constant({4}, kWhole)});
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(count("add"), 1);
  EXPECT_EQ(count("exp"), before);
}

TEST_F(BackwardTest, ReportsTheForwardLineOfWhatItRecords) {
  Tensor x = leaf({4}, kWhole);
  const uint32_t line = std::source_location::current().line() + 1;
  Tensor y = exp(x);
  y.sum().backward();
  client_.synchronize();
  bool found = false;
  for (const LoggedRecord& record : runtime_->log()) found |= record.op == "mul" && record.where.line == line;
  EXPECT_TRUE(found);
}

TEST_F(BackwardTest, WalksALongTapeWithoutADeepStack) {
  Tensor x = leaf({1}, kWhole);
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = neg(y);
  y.backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(BackwardTest, CallsGradientsOfComposites) {
  Tensor x = leaf({4}, kWhole), z = leaf({4}, kWhole);
  auto twice = [&](std::function<std::vector<Tensor>(const GradientContext&)> gradient) {
    std::array<Tensor, 1> outputs;
    {
      NoGrad no_grad;
      outputs[0] = x * 2.0;
    }
    const Tensor inputs[] = {x, z};
    set_custom_gradient("twice", inputs, outputs, std::move(gradient));
    return outputs[0];
  };
  twice([](const GradientContext& context) {
    return std::vector<Tensor>{context.grad_output(0) * 2.0, Tensor()};
  })
      .sum()
      .backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(z.grad().defined());
  Tensor wrong = twice([this](const GradientContext&) { return std::vector<Tensor>{constant({5}, kWhole), Tensor()}; });
  EXPECT_THROW(wrong.backward(constant({4}, kWhole)), ShapeError);
  Tensor none = twice([](const GradientContext&) { return std::vector<Tensor>(2); });
  x.zero_grad();
  none.backward(constant({4}, kWhole));
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(BackwardTest, RefusesOutputsOfDifferentGraphs) {
  Tensor x = exp(leaf({4}, kWhole));
  Graph second = client_.new_graph();
  GraphScope scope(second);
  Tensor y = exp(leaf({4}, kWhole));
  EXPECT_THROW(backward({x.sum(), y.sum()}), GraphError);
  EXPECT_NO_THROW(x.sum().backward());
}

}  // namespace
}  // namespace dtorch::testing
