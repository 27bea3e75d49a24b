// The tape: which calls are on it, what it keeps, how it goes.
#include <gtest/gtest.h>

#include "runtime/client/gradient.h"
#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

class TapeTest : public ClientTest {
 protected:
  Tensor leaf(const Placements& placements = {Replicate(), Replicate()}) {
    return make({4, 4}, {.mesh = mesh_, .placements = placements, .requires_grad = true});
  }
};

TEST_F(TapeTest, GrowsWithEveryOperatorThatNeedsAGradient) {
  Tensor x = leaf(), constant = make({4, 4}, {.mesh = mesh_});
  EXPECT_TRUE(x.is_leaf());
  EXPECT_TRUE(constant.is_leaf());
  Tensor y = add(x, constant), z = relu(y);
  EXPECT_FALSE(relu(constant).requires_grad());
  ASSERT_TRUE(z.requires_grad());
  EXPECT_FALSE(z.is_leaf());
  const GradNode& node = *z.autograd()->node;
  EXPECT_STREQ(node.name, "relu");
  EXPECT_EQ(node.op, &relu_op);
  ASSERT_EQ(node.inputs.size(), 1u);
  EXPECT_EQ(node.inputs[0].autograd, y.autograd());
  EXPECT_EQ(node.inputs[0].meta, &y.meta());
  const GradNode& before = *y.autograd()->node;
  EXPECT_LT(before.order, node.order);
  EXPECT_EQ(before.inputs[0].autograd, x.autograd());
  EXPECT_FALSE(before.inputs[1].autograd);
  EXPECT_EQ(z.autograd()->meta, &z.meta());
}

TEST_F(TapeTest, KeepsOnlyTheValuesThatTheGradientReads) {
  Tensor x = leaf();
  Tensor y = relu(x), z = matmul(y, x), s = add(z, x);
  EXPECT_FALSE(y.autograd()->node->inputs[0].value);
  EXPECT_EQ(y.autograd()->node->outputs[0].value, y.value());
  EXPECT_EQ(z.autograd()->node->inputs[0].value, y.value());
  EXPECT_FALSE(s.autograd()->node->inputs[0].value);
  const Tensor none[] = {Tensor()};
  const GradientContext context(*y.autograd()->node, none);
  EXPECT_EQ(context.output(0).value(), y.value());
  EXPECT_THROW(context.input(0), InternalError);
  EXPECT_EQ(context.attributes<NumberAttrs>().number, 0);
  // z's value isn't kept by anybody: dropping the handle releases it.
  wait();
  const size_t live = runtime_->num_live();
  z = Tensor();
  y = Tensor();
  wait();
  EXPECT_EQ(runtime_->num_live(), live - 1);
}

TEST_F(TapeTest, RunsThroughConversions) {
  Tensor sharded = make({4, 4}, {.mesh = mesh_, .placements = {Shard(0), Replicate()}});
  Tensor x = leaf();
  Tensor y = add(sharded, x);
  const GradNode& node = *y.autograd()->node;
  ASSERT_TRUE(node.inputs[1].autograd);
  const GradNode& conversion = *node.inputs[1].autograd->node;
  EXPECT_STREQ(conversion.name, "redistribute");
  EXPECT_EQ(conversion.inputs[0].autograd, x.autograd());
}

TEST_F(TapeTest, StandsStillInNoGradAndIsLeftByDetach) {
  Tensor x = leaf();
  {
    NoGrad no_grad;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(relu(x).requires_grad());
  }
  EXPECT_TRUE(grad_enabled());
  Tensor y = relu(x);
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_EQ(y.detach().value(), y.value());
}

TEST_F(TapeTest, GivesGradientsToFloatingOutputsOfDifferentiableOperatorsOnly) {
  Tensor x = leaf();
  auto [values, indices] = record_many<2>(split_op, NoAttrs{}, {&x}, Where::current());
  EXPECT_TRUE(values.requires_grad());
  EXPECT_FALSE(indices.requires_grad());
  EXPECT_FALSE(record(compare_op, NoAttrs{}, {&x}, Where::current()).requires_grad());
  EXPECT_THROW(make({4}, {.mesh = mesh_, .dtype = kInt64}).requires_grad_(), DTypeError);
}

TEST_F(TapeTest, RequiresGradCanBeSwitchedOffOnLeavesOnly) {
  Tensor x = leaf();
  Tensor y = relu(x);
  EXPECT_THROW(y.requires_grad_(false), UserError);
  EXPECT_FALSE(x.requires_grad_(false).requires_grad());
  EXPECT_THROW(x.retain_grad(), UserError);
}

TEST_F(TapeTest, ACompositeMayHaveAGradientOfItsOwn) {
  Tensor x = leaf();
  std::array<Tensor, 1> outputs;
  {
    NoGrad no_grad;
    outputs[0] = relu(relu(x));
  }
  const Tensor inputs[] = {x, Tensor()};
  set_custom_gradient("twice", inputs, outputs, [](const GradientContext& context) {
    return std::vector<Tensor>{context.grad_output(0), Tensor()};
  });
  ASSERT_TRUE(outputs[0].requires_grad());
  EXPECT_STREQ(outputs[0].autograd()->node->name, "twice");
  std::array<Tensor, 1> constant = {make({4, 4}, {.mesh = mesh_})};
  set_custom_gradient("twice", constant, constant, {});
  EXPECT_FALSE(constant[0].requires_grad());
}

TEST_F(TapeTest, IsFreedWithoutADeepStack) {
  Tensor x = leaf();
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = relu(y);
  y = Tensor();
  wait();
  EXPECT_EQ(runtime_->num_live(), 1u);
}

}  // namespace
}  // namespace dtorch::testing
