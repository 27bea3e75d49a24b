// The checker itself: it must find what is wrong, else that it finds nothing proves nothing.
#include "tests/ops/checker.h"

#include <gtest/gtest.h>

#include "dtorch/dtorch.h"
#include "tests/ops/sample_values.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
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
  const OperatorReport report = check_operator(def, {});
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
  const OperatorReport report = check_operator(def, {});
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
  const OperatorReport report = check_operator(def, {});
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
  EXPECT_FALSE(check_operator(def, {}).problems.empty());
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
