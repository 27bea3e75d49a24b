// Random programs agree on all layouts; and faults that are planted in operators are found and shrunk to their core.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/random/planted.h"
#include "tests/random/run_program.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using RandomPrograms = KernelTest;

TEST_F(RandomPrograms, AgreeWithOneDevice) {
  RunCounts total;
  const GenerateOptions options{.seed = 5};
  for (uint64_t number = 0; number < 150; ++number) {
    const Program program = generate_program(number, options);
    const RunResult result = run_program(program);
    total += result.counts;
    EXPECT_EQ(result.problem, "") << shrink_program(program).str();
  }
  EXPECT_GE(total.with_gradients * 10, total.programs * 3);
  EXPECT_GE(total.sharded * 10, total.operators * 6);
  EXPECT_GT(total.redistributions, total.programs);
  EXPECT_GT(total.repaired, 0);
  EXPECT_EQ(total.repaired, total.refused);
}

// From the third time on most of it is replayed, between programs that aren't.
TEST_F(RandomPrograms, AgreeWhenTheyAreReplayed) {
  const GenerateOptions options{.seed = 21};
  client().synchronize();
  const int64_t before = client().stats().template_operators;
  int64_t operators = 0;
  for (uint64_t number = 0; number < 12; ++number) {
    const Program program = generate_program(number, options);
    std::map<int, RunResult::OneDevice> first;
    for (int time = 0; time < 4; ++time) {
      RunResult result = run_program(program);
      operators += result.counts.operators;
      ASSERT_EQ(result.problem, "") << "time " << time << "\n" << program.str();
      if (time == 0) {
        first = std::move(result.values);
        continue;
      }
      ASSERT_EQ(result.values.size(), first.size());
      for (const auto& [value, one] : result.values) {
        const HostTensor& expected = first.at(value).value;
        ASSERT_EQ(one.value.num_bytes(), expected.num_bytes());
        EXPECT_EQ(std::memcmp(one.value.bytes(), expected.bytes(), static_cast<size_t>(expected.num_bytes())), 0)
            << "value " << value << "\n"
            << program.str();
      }
    }
  }
  client().synchronize();
  EXPECT_GT(client().stats().template_operators - before, operators / 4);
}

TEST_F(RandomPrograms, AreTheSameForTheSameSeed) {
  const GenerateOptions options{.seed = 9};
  const std::string first = generate_program(3, options).str();
  generate_program(4, options);
  EXPECT_EQ(generate_program(3, options).str(), first);
  EXPECT_NE(generate_program(4, options).str(), first);
}

// The first program that fails, shrunk.
Program core_of_first_failure(const GenerateOptions& options) {
  for (uint64_t number = 0; number < 200; ++number) {
    const Program program = generate_program(number, options);
    if (!run_program(program).problem.empty()) return shrink_program(program);
  }
  return {};
}

TEST_F(RandomPrograms, FindAWrongRuleAndShrinkToIt) {
  GenerateOptions options{.seed = 2};
  options.extra_calls = {{"square_of_parts($0)",
                          [](const std::vector<Tensor>& in) { return std::vector<Tensor>{square_of_parts(in[0])}; }}};
  const Program core = core_of_first_failure(options);
  EXPECT_NE(core.str().find("square_of_parts"), std::string::npos) << core.str();
  EXPECT_NE(core.str().find("Partial(sum)"), std::string::npos) << core.str();
  EXPECT_LE(core.num_operators(), 2) << core.str();
}

TEST_F(RandomPrograms, FindAWrongGradientAndShrinkToIt) {
  GenerateOptions options{.seed = 3, .gradients = 1};
  options.extra_calls = {
      {"wrong_gradient($0)", [](const std::vector<Tensor>& in) { return std::vector<Tensor>{wrong_gradient(in[0])}; }}};
  const Program core = core_of_first_failure(options);
  EXPECT_NE(core.str().find("wrong_gradient"), std::string::npos) << core.str();
  EXPECT_TRUE(core.gradients);
  EXPECT_LE(core.num_operators(), 3) << core.str();
}

}  // namespace
}  // namespace dtorch::test
