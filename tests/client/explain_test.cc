// explain(): what leads to a tensor, what was inserted, what it costs.
#include "runtime/client/explain.h"

#include <gtest/gtest.h>

#include "runtime/client/lineage.h"
#include "runtime/client/placement_error.h"
#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string line_at(int offset, std::source_location where = std::source_location::current()) {
  return "explain_test.cc:" + std::to_string(static_cast<int>(where.line()) + offset);
}

class ExplainTest : public ClientTest {
 protected:
  Tensor on(const Shape& shape, const Placements& placements, Where where = Where::current()) {
    return make(shape, {.mesh = mesh_, .placements = placements}, where);
  }
};

TEST_F(ExplainTest, KnowsATensorsOwnOperatorWithoutBeingAskedBefore) {
  const Tensor h = matmul(on({4, 8}, {Replicate(), Shard(1)}), on({8, 6}, {Replicate(), Shard(0)}));
  const std::string line = line_at(1);
  const Tensor r = h.redistribute({Replicate(), Replicate()});
  const std::string text = explain(r);
  EXPECT_TRUE(has(text, r.str() + "\n")) << text;
  EXPECT_TRUE(has(text, "%1 = an input: float32 [4, 6] {Replicate(), Partial(sum)} on cpu mesh (dp=2, tp=2)")) << text;
  EXPECT_TRUE(has(text, "%2 = redistribute(%1): float32 [4, 6] {Replicate(), Replicate()}")) << text;
  EXPECT_TRUE(has(text, line)) << text;
  EXPECT_TRUE(has(text, "fold sum over tp")) << text;
  EXPECT_TRUE(has(text, "peak memory: ")) << text;
  EXPECT_TRUE(has(text, "set_explain(true)")) << text;
  EXPECT_EQ(r.value()->lineage().get(), nullptr);
}

TEST_F(ExplainTest, ListsTheOperatorsWithTheirLinesAndPlans) {
  set_explain(true);
  const std::string a_line = line_at(1);
  const Tensor a = on({4, 8}, {Replicate(), Shard(1)});
  const Tensor b = on({8, 6}, {Replicate(), Shard(0)});
  const Tensor unused = relu(a);
  const std::string product_line = line_at(1);
  const Tensor h = matmul(a, b);
  const std::string last_line = line_at(1);
  const Tensor r = h.redistribute({Replicate(), Replicate()});
  const std::string text = explain(r);
  EXPECT_TRUE(has(text, "%1 = make(): float32 [4, 8] {Replicate(), Shard(1)} on cpu mesh (dp=2, tp=2)   tests/client/" +
                            a_line + "\n"))
      << text;
  EXPECT_TRUE(has(text, "%3 = matmul(%1, %2): float32 [4, 6] {Replicate(), Partial(sum)}")) << text;
  EXPECT_TRUE(has(text, product_line)) << text;
  EXPECT_TRUE(has(text, "%4 = redistribute(%3): ")) << text;
  EXPECT_TRUE(has(text, last_line + "\n       step 1: fold sum over tp")) << text;
  EXPECT_FALSE(has(text, "relu")) << text;
  EXPECT_FALSE(has(text, "inserted")) << text;
  // 24 elements of 4 bytes; two replicas of each part share the fold (1 receive), then three more devices get it.
  EXPECT_TRUE(has(text, "1 redistribution moves 384 bytes between devices")) << text;
}

TEST_F(ExplainTest, MarksWhatWasInserted) {
  set_explain(true);
  const Tensor a = on({4, 6}, {Shard(0), Replicate()});
  const Tensor b = on({4, 6}, {Replicate(), Replicate()});
  const std::string text = explain(add(a, b));
  EXPECT_TRUE(has(text, "%3 = redistribute(%2): float32 [4, 6] {Shard(0), Replicate()}")) << text;
  EXPECT_TRUE(has(text, "inserted for add\n       local: no data moves\n")) << text;
  EXPECT_TRUE(has(text, "%4 = add(%1, %3): ")) << text;
  EXPECT_TRUE(has(text, "no data moves between devices")) << text;
}

// An operator that combines by itself, as its file would write it.
Tensor product(const Tensor& a, const Tensor& b, Where where = Where::current()) {
  return matmul(a, b, where).redistribute({Replicate(), Replicate()}, where);
}

TEST_F(ExplainTest, MarksWhatAnOperatorCombinesInsideAndNotWhatTheUserWrote) {
  set_explain(true);
  const Tensor a = on({4, 8}, {Replicate(), Shard(1)});
  const Tensor b = on({8, 6}, {Replicate(), Shard(0)});
  const std::string inside = explain(product(a, b));
  EXPECT_TRUE(has(inside, ", inserted for matmul\n")) << inside;
  const std::string mine = explain(matmul(a, b).redistribute({Replicate(), Replicate()}));
  EXPECT_TRUE(has(mine, "redistribute(%3)")) << mine;
  EXPECT_FALSE(has(mine, "inserted")) << mine;
}

TEST_F(ExplainTest, EndsAtTheLastRead) {
  set_explain(true);
  Tensor x = on({4}, {Replicate(), Replicate()});
  for (int i = 0; i < 5; ++i) x = relu(x);
  EXPECT_EQ(x.value()->lineage()->depth, 5u);
  const std::string before_line = line_at(1);
  x = relu(x);
  x.to_host();
  const Tensor y = relu(x);
  const std::string text = explain(y);
  EXPECT_TRUE(has(text, "%1 = relu: float32 [4]")) << text;
  EXPECT_TRUE(has(text, "(made before, tests/client/" + before_line + ")")) << text;
  EXPECT_TRUE(has(text, "%2 = relu(%1)")) << text;
  EXPECT_FALSE(has(text, "%3")) << text;
  EXPECT_TRUE(has(explain(x), "%7 = relu(%6)")) << explain(x);
}

TEST_F(ExplainTest, KeepsABoundedPastOfAProgramThatNeverReads) {
  set_explain(true);
  Tensor x = on({4}, {Replicate(), Replicate()});
  for (int i = 0; i < 5000; ++i) x = relu(x);
  EXPECT_LE(x.value()->lineage()->depth, 1000u);
  EXPECT_TRUE(has(explain(x), "made before"));
}

TEST_F(ExplainTest, NotesNothingWhenSwitchedOffAgain) {
  set_explain(true);
  const Tensor x = relu(on({4}, {Replicate(), Replicate()}));
  client_.set_explain(false);
  const Tensor y = relu(x);
  EXPECT_NE(x.value()->lineage().get(), nullptr);
  EXPECT_EQ(y.value()->lineage().get(), nullptr);
  EXPECT_EQ(explain(Tensor()), "Tensor (undefined)\n");
}

TEST_F(ExplainTest, CallsOperatorsByTheUsersName) {
  set_explain(true);
  const Tensor x = on({4}, {Replicate(), Replicate()});
  const std::string text = explain(record(add_number_op, NoAttrs{}, {&x}, Where::current()));
  EXPECT_TRUE(has(text, "%2 = add(%1)")) << text;
  const Tensor p = on({4}, {Partial(), Replicate()});
  try {
    record(add_number_op, NoAttrs{}, {&p}, Where::current());
    FAIL() << "no error";
  } catch (const PlacementError& e) {
    EXPECT_EQ(e.op(), "add");
  }
}

}  // namespace
}  // namespace dtorch::testing
