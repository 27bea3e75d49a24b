// Rules against small operators: for every tuple of input layouts either a refusal whose fix works, or local results
// that agree with the inferred layout and assemble to the operator's value.
#include <gtest/gtest.h>

#include <functional>

#include "mesh/signature.h"
#include "tests/mesh/simulator.h"

namespace dtorch::test {
namespace {

using Operator = std::function<Array(const std::vector<Array>&)>;

// Applies f to broadcast elements.
Operator elementwise(std::function<double(const std::vector<double>&)> f) {
  return [f](const std::vector<Array>& inputs) {
    Array result;
    for (const Array& input : inputs) result.shape = broadcast_shapes(result.shape, input.shape, "test");
    for_each_coordinate(result.shape, [&](const Shape& at) {
      std::vector<double> values;
      for (const Array& input : inputs) {
        Shape own(at.end() - input.shape.ndim(), at.end());
        for (int64_t d = 0; d < own.size(); ++d) own[d] = input.shape[d] == 1 ? 0 : own[d];
        values.push_back(input.at(own));
      }
      result.data.push_back(f(values));
    });
    return result;
  };
}

Array matmul(const std::vector<Array>& inputs) {
  const int64_t m = inputs[0].shape[0];
  const int64_t k = inputs[0].shape[1];
  const int64_t n = inputs[1].shape[1];
  EXPECT_EQ(k, inputs[1].shape[0]);
  Array result{{m, n}, {}};
  for_each_coordinate(result.shape, [&](const Shape& at) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += inputs[0].at({at[0], i}) * inputs[1].at({i, at[1]});
    result.data.push_back(sum);
  });
  return result;
}

Array sum_of_dim0(const std::vector<Array>& inputs) {
  Array result{{1, inputs[0].shape[1]}, {}};
  for_each_coordinate(result.shape, [&](const Shape& at) {
    double sum = 0;
    for (int64_t i = 0; i < inputs[0].shape[0]; ++i) sum += inputs[0].at({i, at[1]});
    result.data.push_back(sum);
  });
  return result;
}

// x minus its mean over dim 1, times the length: stands for a norm.
Array centered(const std::vector<Array>& inputs) {
  Array result{inputs[0].shape, {}};
  for_each_coordinate(result.shape, [&](const Shape& at) {
    double value = inputs[0].at(at) * static_cast<double>(result.shape[1]) * inputs[0].at(at);
    for (int64_t j = 0; j < result.shape[1]; ++j) value -= inputs[0].at({at[0], j}) * inputs[0].at({at[0], j});
    result.data.push_back(value + inputs[1].at({at[1]}));
  });
  return result;
}

Array transposed(const std::vector<Array>& inputs) {
  Array result{{inputs[0].shape[1], inputs[0].shape[0]}, {}};
  for_each_coordinate(result.shape, [&](const Shape& at) { result.data.push_back(inputs[0].at({at[1], at[0]})); });
  return result;
}

struct Counts {
  int matched = 0;
  int refused = 0;
};

class Checker {
 public:
  Checker(Rule rule, Operator op, std::vector<Shape> shapes)
      : rule_(std::move(rule)), op_(std::move(op)), shapes_(std::move(shapes)) {
    for (const Shape& shape : shapes_) values_.push_back(iota(shape));
    expected_ = op_(values_);
  }

  Counts check_all(const DeviceMesh& mesh, const std::vector<ReduceOp>& kinds, ConversionPolicy policy) {
    std::vector<std::vector<Layout>> layouts;
    Shape counts;
    for (const Shape& shape : shapes_) {
      layouts.push_back(all_layouts(mesh, shape.ndim(), kinds));
      counts.push_back(static_cast<int64_t>(layouts.back().size()));
    }
    Counts result;
    for_each_coordinate(counts, [&](const Shape& choice) {
      if (::testing::Test::HasFailure()) return;
      std::vector<Layout> inputs;
      for (size_t i = 0; i < shapes_.size(); ++i) {
        inputs.push_back(layouts[i][static_cast<size_t>(choice[static_cast<int64_t>(i)])]);
      }
      ++(check(inputs, policy) ? result.matched : result.refused);
    });
    return result;
  }

 private:
  MatchResult match(const std::vector<Layout>& inputs, ConversionPolicy policy) const {
    std::vector<TensorMeta> metas;
    metas.reserve(inputs.size());
    std::vector<const TensorMeta*> pointers;
    for (size_t i = 0; i < inputs.size(); ++i) {
      metas.push_back({shapes_[i], kFloat64, inputs[i]});
      pointers.push_back(&metas.back());
    }
    const int64_t ndim = expected_.shape.ndim();
    return match_rule(rule_, pointers, std::span(&ndim, 1), policy);
  }

  // True when it matched.
  bool check(std::vector<Layout> inputs, ConversionPolicy policy) {
    std::string trace;
    for (const Layout& layout : inputs) trace += layout.str() + "; ";
    SCOPED_TRACE(trace);
    const MatchResult result = match(inputs, policy);
    if (result.match) {
      run(inputs, *result.match, policy);
      return true;
    }
    EXPECT_FALSE(result.failure.reason.empty());
    EXPECT_FALSE(result.failure.legal_rows.empty());
    EXPECT_LE(result.failure.legal_rows.size(), 12u);
    EXPECT_FALSE(result.failure.fix.empty());
    for (const Conversion& c : result.failure.fix) {
      EXPECT_NE(inputs[static_cast<size_t>(c.input)], c.layout);
      inputs[static_cast<size_t>(c.input)] = c.layout;
    }
    const MatchResult fixed = match(inputs, policy);
    EXPECT_TRUE(fixed.match.has_value()) << "the fix isn't legal";
    if (fixed.match) run(inputs, *fixed.match, policy);
    return false;
  }

  void run(const std::vector<Layout>& layouts, const Match& match, ConversionPolicy policy) {
    std::vector<Distributed> inputs;
    for (size_t i = 0; i < layouts.size(); ++i) inputs.push_back(distribute(values_[i], layouts[i]));
    for (const Conversion& c : match.conversions) {
      Distributed& input = inputs[static_cast<size_t>(c.input)];
      EXPECT_NE(policy, ConversionPolicy::kNone);
      if (policy == ConversionPolicy::kLocal) {
        EXPECT_EQ(redistribute_bytes(input.global_shape, kFloat64, input.layout, c.layout), 0)
            << "not local: " << c.layout;
      }
      input = redistribute(input, c.layout);
    }
    const Layout& layout = match.output_layouts.at(0);
    Distributed output{expected_.shape, layout, {}};
    for (int64_t device : layout.mesh().devices()) {
      std::vector<Array> parts;
      for (const Distributed& input : inputs) parts.push_back(input.parts.at(device));
      Array part = op_(parts);
      EXPECT_EQ(part.shape, layout.local_shape(expected_.shape, device)) << "as " << layout;
      if (::testing::Test::HasFailure()) return;
      output.parts[device] = std::move(part);
    }
    EXPECT_EQ(assemble(output).data, expected_.data) << "as " << layout;
  }

  Rule rule_;
  Operator op_;
  std::vector<Shape> shapes_;
  std::vector<Array> values_;
  Array expected_;
};

class Rules : public ::testing::TestWithParam<Shape> {
 protected:
  // All policies give true results; returns what the local one accepts.
  Counts check(const Rule& rule, const Operator& op, const std::vector<Shape>& shapes,
               const std::vector<ReduceOp>& some_kinds = {}) {
    Checker checker(rule, op, shapes);
    const DeviceMesh mesh = init_device_mesh("cpu", GetParam());
    std::vector<ReduceOp> kinds = some_kinds;
    if (kinds.empty()) kinds = mesh.num_axes() == 1 ? std::vector{kSum, kAvg} : std::vector{kSum};
    const Counts none = checker.check_all(mesh, kinds, ConversionPolicy::kNone);
    const Counts local = checker.check_all(mesh, kinds, ConversionPolicy::kLocal);
    const Counts reduce = checker.check_all(mesh, kinds, ConversionPolicy::kReduce);
    EXPECT_LE(none.matched, local.matched);
    EXPECT_LE(local.matched, reduce.matched);
    EXPECT_GT(none.matched, 0);
    return local;
  }
};

double add_all(const std::vector<double>& v) { return v[0] + v.back(); }
double multiply_all(const std::vector<double>& v) { return v[0] * v.back(); }
double square(const std::vector<double>& v) { return v[0] * v[0]; }

TEST_P(Rules, OfAddAreTrue) {
  const std::vector<Shape> shapes{{5, 4}, {5, 4}};
  check(elementwise_rule(shapes, {5, 4}, Linear::kInAll), elementwise(add_all), shapes);
}

TEST_P(Rules, OfAddWithBroadcastingAreTrue) {
  for (const std::vector<Shape>& shapes :
       {std::vector<Shape>{{3, 4}, {4}}, {{3, 1}, {1, 4}}, {{2, 5}, {}}, {{3, 1}, {1}}}) {
    const Shape output = broadcast_shapes(shapes[0], shapes[1], "add");
    check(elementwise_rule(shapes, output, Linear::kInAll), elementwise(add_all), shapes);
  }
}

TEST_P(Rules, OfMultiplyAreTrue) {
  const std::vector<Shape> shapes{{5, 4}, {4}};
  check(elementwise_rule(shapes, {5, 4}, Linear::kInEach), elementwise(multiply_all), shapes);
  check(elementwise_rule(shapes, {5, 4}, Linear::kInFirst), elementwise(multiply_all), shapes);
}

TEST_P(Rules, OfUnaryOperatorsAreTrue) {
  const std::vector<Shape> shapes{{5, 4}};
  const auto negate = elementwise([](const std::vector<double>& v) { return -v[0]; });
  const Counts linear = check(elementwise_rule(shapes, {5, 4}, Linear::kInAll), negate, shapes);
  EXPECT_EQ(linear.refused, 0);
  const Counts other = check(elementwise_rule(shapes, {5, 4}, Linear::kNo), elementwise(square), shapes, {kSum, kMax});
  EXPECT_EQ(other.refused > 0, GetParam() != Shape{1});
}

TEST_P(Rules, OfMatmulAreTrue) { check(einsum_rule("mk,kn->mn"), matmul, {{3, 5}, {5, 2}}); }

TEST_P(Rules, OfReductionsAreTrue) {
  const int64_t dims[] = {0};
  const Counts counts = check(reduce_rule(2, dims, true, kSum, Linear::kInAll), sum_of_dim0, {{5, 4}});
  EXPECT_EQ(counts.refused, 0);
}

TEST_P(Rules, OfNormsAreTrue) {
  const int64_t dims[] = {1};
  const Letters weight{2};
  const Counts counts =
      check(pointwise_except_rule(2, dims, Linear::kNo, std::span(&weight, 1)), centered, {{5, 4}, {4}});
  EXPECT_EQ(counts.refused > 0, GetParam() != Shape{1});
}

TEST_P(Rules, OfPermutationsAreTrueForEveryKindOfPartial) {
  const int64_t perm[] = {1, -2};
  const Counts counts = check(permute_rule(perm), transposed, {{5, 4}}, {kSum, kAvg, kMax, kMin});
  EXPECT_EQ(counts.refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Meshes, Rules, ::testing::Values(Shape{1}, Shape{2}, Shape{3}, Shape{2, 2}));

TEST(RuleHelpers, ListRowsInOrderOfLetters) {
  const Rule rule = einsum_rule("bmk,kn->bmn");
  std::vector<std::string> rows;
  for (const Row& row : rule.rows) rows.push_back(row.str());
  EXPECT_EQ(rows, (std::vector<std::string>{
                      "(Replicate(), Replicate()) -> (Replicate())", "(Shard(0), Replicate()) -> (Shard(0))",
                      "(Shard(1), Replicate()) -> (Shard(1))", "(Shard(2), Shard(0)) -> (Partial(sum))",
                      "(Replicate(), Shard(1)) -> (Shard(2))", "(Partial(sum), Replicate()) -> (Partial(sum))",
                      "(Replicate(), Partial(sum)) -> (Partial(sum))", "(Partial(avg), Replicate()) -> (Partial(avg))",
                      "(Replicate(), Partial(avg)) -> (Partial(avg))"}));
}

TEST(RuleHelpers, GiveBroadcastDimsNoLetter) {
  const Shape inputs[] = {{3, 1}, {4}};
  const Rule rule = elementwise_rule(inputs, {3, 4}, Linear::kNo, 2);
  EXPECT_EQ(rule.input_letters[0], (Letters{1, kNoLetter}));
  EXPECT_EQ(rule.input_letters[1], (Letters{2}));
  EXPECT_EQ(rule.output_letters.size(), 2u);
  EXPECT_EQ(rule.rows[2], (Row{{Replicate(), Shard(0)}, {Shard(1), Shard(1)}}));
}

TEST(RuleHelpers, RefuseBadFormulas) {
  EXPECT_THROW(einsum_rule("mk,kn"), InternalError);
  EXPECT_THROW(einsum_rule("mm->m"), InternalError);
  EXPECT_THROW(einsum_rule("...m->m"), InternalError);
  EXPECT_THROW(einsum_rule("m->n"), InternalError);
}

}  // namespace
}  // namespace dtorch::test
