// The checker itself: it must find what is wrong, else that it finds nothing proves nothing.
#include "checker/checker.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "checker/cache_check.h"
#include "checker/row_search.h"
#include "checker/sample_values.h"
#include "dtorch/dtorch.h"
#include "tests/ops/excluded_rows.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
using namespace checker;
namespace {

using CheckerTest = KernelTest;

// A definition with relu's name, whose samples the checker takes.
OperatorDef with_samples(SamplesFn samples) {
  OperatorDef def = *OperatorRegistry::global().find("relu");
  def.samples = samples;
  return def;
}

SampleInput matrix() { return {{5, 3}}; }

TEST_F(CheckerTest, AWrongValueOnAMeshIsFound) {
  const OperatorDef def = with_samples([]() -> std::vector<Sample> {
    return {{.name = "depends on the mesh", .inputs = {matrix()}, .call = [](const std::vector<Tensor>& in) {
               return std::vector<Tensor>{mul(in[0], static_cast<double>(in[0].mesh().num_devices()))};
             }}};
  });
  const OperatorReport report = check_operator(client(), def, {});
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find("should be"), std::string::npos) << report.problems[0];
}

TEST_F(CheckerTest, AWrongGradientOnAMeshIsFound) {
  const OperatorDef def = with_samples([]() -> std::vector<Sample> {
    return {{.name = "gradient depends on the mesh", .inputs = {matrix()}, .call = [](const std::vector<Tensor>& in) {
               const Tensor x = in[0].mesh().num_devices() == 3 ? in[0].detach() + in[0] * 0.0 : in[0];
               return std::vector<Tensor>{x * 2.0};
             }}};
  });
  const OperatorReport report = check_operator(client(), def, {});
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find("gradient of input 0"), std::string::npos) << report.problems[0];
}

TEST_F(CheckerTest, APartTreatedAsTheValueIsFound) {
  // Takes the pending parts for the values that they add up to.
  const OperatorDef def = with_samples([]() -> std::vector<Sample> {
    return {{.name = "relu of parts", .inputs = {matrix()}, .call = [](const std::vector<Tensor>& in) {
               if (!in[0].layout().has_partial()) return std::vector<Tensor>{relu(in[0])};
               const Tensor wrong = from_local(
                   in[0].layout(),
                   [&](int64_t device, const Shape&) {
                     HostTensor part = in[0].to_host_local(device);
                     float* values = part.mutable_data<float>();
                     for (int64_t i = 0; i < part.num_elements(); ++i) values[i] = std::max(values[i], 0.25f);
                     return part;
                   },
                   in[0].shape());
               return std::vector<Tensor>{wrong};
             }}};
  });
  const OperatorReport report = check_operator(client(), def, {});
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find("Partial(sum)"), std::string::npos) << report.problems[0];
}

TEST_F(CheckerTest, AnErrorThatIsNoRefusalIsFound) {
  const OperatorDef def = with_samples([]() -> std::vector<Sample> {
    return {{.name = "throws on a mesh", .inputs = {matrix()}, .call = [](const std::vector<Tensor>& in) {
               if (in[0].mesh().num_devices() > 1) throw ShapeError("[relu] local shapes differ");
               return std::vector<Tensor>{relu(in[0])};
             }}};
  });
  EXPECT_FALSE(check_operator(client(), def, {}).problems.empty());
}

TEST_F(CheckerTest, ARowThatNeedsNoCommunicationAndIsRefusedIsFound) {
  const OperatorDef def = with_samples([]() -> std::vector<Sample> {
    const auto call = [](const std::vector<Tensor>& in) {
      if (in[0].layout().placement(0).is_shard(0)) softmax(in[0], 0);  // refuses
      return std::vector<Tensor>{relu(in[0])};
    };
    return {{.name = "uneven", .inputs = {matrix()}, .call = call},
            {.name = "size 1", .inputs = {{{1, 4}}}, .call = call}};
  });
  const OperatorReport report = check_operator(client(), def, {});
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_NE(report.problems[0].find("the row S0->S0 needs no communication, and is refused"), std::string::npos)
      << report.problems[0];
  EXPECT_EQ(report.counts.rows_found, 2);
  EXPECT_EQ(report.counts.rows_accepted, 1);
}

std::set<std::string> found(const std::vector<Sample>& samples) {
  std::set<std::string> rows;
  for (const FoundRow& row : find_rows(client(), samples, 1, 10000)) rows.insert(short_text(row.row));
  return rows;
}

TEST_F(CheckerTest, TheSearchFindsTheRowsOfAMatrixProduct) {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{matmul(in[0], in[1])}; };
  EXPECT_EQ(found({{.name = "uneven", .inputs = {{{5, 3}}, {{3, 7}}}, .call = call},
                   {.name = "more", .inputs = {{{4, 6}, kFloat64}, {{6, 2}, kFloat64}}, .call = call}}),
            (std::set<std::string>{"S0,R->S0", "S1,S0->P", "R,S1->S1", "P,R->P", "R,P->P"}));
}

TEST_F(CheckerTest, TheSearchTakesNoChanceHitsForRows) {
  const std::set<std::string> alone = {"S0->S0", "S1->S1"};
  // All true, whatever the parts of a pending sum are.
  EXPECT_EQ(found({{.name = "constant",
                    .inputs = {matrix()},
                    .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] > -1000.0}; }}}),
            alone);
  // The whole and every part give true.
  EXPECT_EQ(found({{.name = "one truth",
                    .inputs = {matrix()},
                    .call =
                        [](const std::vector<Tensor>& in) {
                          return std::vector<Tensor>{amax(in[0], {0, 1}) > -1000.0};
                        }}}),
            std::set<std::string>{});
  // A row that holds on one sample only isn't one: the dim that broadcasts differs.
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] * in[1]}; };
  const std::set<std::string> rows = found({{.name = "rows", .inputs = {{{5, 3}}, {{5, 1}}}, .call = call},
                                            {.name = "all", .inputs = {{{4, 3}}, {{4, 3}}}, .call = call}});
  EXPECT_TRUE(rows.contains("S0,S0->S0"));
  EXPECT_FALSE(rows.contains("S1,R->S1"));
}

TEST_F(CheckerTest, ACallThatRemembersTheOneBeforeIsFound) {
  static double factor = 0;
  const auto call_with = [](double own) {
    return [own](const std::vector<Tensor>& in) {
      const double before = std::exchange(factor, own);
      return std::vector<Tensor>{in[0] * (before == 0 || !in[0].placements()[0].is_shard() ? own : before)};
    };
  };
  const std::vector<Sample> samples = {{.name = "twice", .inputs = {matrix()}, .call = call_with(2)},
                                       {.name = "thrice", .inputs = {matrix()}, .call = call_with(3)}};
  int64_t num_compared = 0;
  const std::vector<std::string> problems =
      check_repeated_calls(client(), with_samples(nullptr), samples, 1, 10, &num_compared);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].find("right after that of"), std::string::npos) << problems[0];
  EXPECT_GT(num_compared, 6);
}

TEST_F(CheckerTest, SamplesThatAreTooFewOrTooEvenAreFound) {
  const OperatorDef def = with_samples(nullptr);
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{relu(in[0])}; };
  EXPECT_EQ(check_samples(def, {{.name = "even", .inputs = {{{4, 2}}}, .call = call}}).size(), 3u);
  EXPECT_TRUE(check_samples(def, {{.name = "uneven", .inputs = {matrix()}, .call = call},
                                  {.name = "empty", .inputs = {{{0, 2}}}, .call = call}})
                  .empty());
}

TEST_F(CheckerTest, EveryExcludedRowHasAnOperatorAReasonAndIsReallyRefused) {
  std::map<std::string, std::set<std::string>> refused;
  for (const ExcludedRow& excluded : excluded_rows()) {
    const OperatorDef* op = OperatorRegistry::global().find(excluded.op);
    ASSERT_NE(op, nullptr) << excluded.op;
    EXPECT_NE(std::string(excluded.reason), "") << excluded.op << " " << excluded.row;
    if (!refused.contains(excluded.op))
      refused[excluded.op] = check_operator(client(), *op, {.excluded = excluded_rows()}).excluded;
    EXPECT_TRUE(refused[excluded.op].contains(excluded.row)) << excluded.op << " accepts " << excluded.row;
  }
}

TEST_F(CheckerTest, PartsOfAPendingSumAddUpToItsValueAndDiffer) {
  const HostTensor value = iota({3, 4}), whole_numbers = seq({3, 4});
  for (int64_t parts : {2, 3, 4}) {
    std::vector<double> sum(12), sum_of_whole(12);
    for (int64_t i = 0; i < parts; ++i) {
      const HostTensor part = partial_part(value, i, parts, kSum),
                       whole_part = partial_part(whole_numbers, i, parts, kSum);
      EXPECT_FALSE(part.equals(value));
      for (int64_t e = 0; e < 12; ++e) {
        sum[static_cast<size_t>(e)] += part.element<double>(e);
        sum_of_whole[static_cast<size_t>(e)] += whole_part.element<double>(e);
      }
    }
    for (int64_t e = 0; e < 12; ++e) {
      EXPECT_NEAR(sum[static_cast<size_t>(e)], value.element<double>(e), 1e-6);
      EXPECT_EQ(sum_of_whole[static_cast<size_t>(e)], whole_numbers.element<double>(e));
    }
  }
}

TEST_F(CheckerTest, EverySampleFillGivesWhatItsNameSays) {
  for (int64_t i : sample_value({{20}, kInt64, SampleFill::kIndices, 3}, 5).to_vector<int64_t>()) {
    EXPECT_GE(i, 0);
    EXPECT_LT(i, 3);
  }
  for (double x : sample_value({{20}, kFloat64, SampleFill::kPositive}, 5).to_vector<double>()) EXPECT_GT(x, 0);
  std::vector<double> distinct = sample_value({{20}, kFloat64, SampleFill::kDistinct}, 5).to_vector<double>();
  std::sort(distinct.begin(), distinct.end());
  EXPECT_EQ(std::adjacent_find(distinct.begin(), distinct.end()), distinct.end());
}

}  // namespace
}  // namespace dtorch::test
