// record: inference and its cache, slots and releases, conversions, source lines, the credit limit.
#include "runtime/client/record.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "runtime/client/graph_core.h"
#include "tests/client/test_operators.h"

namespace dtorch::testing {
namespace {

const OperatorDef& bytes_op();

class RecordTest : public ClientTest {
 protected:
  static void SetUpTestSuite() { bytes_op(); }  // registered while no runtime runs
  TensorOptions on(const Placements& placements) const { return {.mesh = mesh_, .placements = placements}; }
  InferenceCache& cache() { return client_.graph().core().cache(); }
  // Releases recorded so far, in order.
  std::vector<OperandId> releases() {
    wait();
    std::vector<OperandId> all;
    for (const LoggedRecord& record : runtime_->log())
      all.insert(all.end(), record.releases.begin(), record.releases.end());
    return all;
  }
};

TEST_F(RecordTest, InfersShapeDtypeAndPlacementsAtTheCall) {
  Tensor a = make({4, 6}, on({Shard(0), Replicate()})), b = make({6, 8}, on({Replicate(), Shard(1)}));
  Tensor c = matmul(a, b);
  EXPECT_EQ(c.shape(), (Shape{4, 8}));
  EXPECT_EQ(c.placements(), (Placements{Shard(0), Shard(1)}));
  EXPECT_EQ(c.mesh(), mesh_);
  EXPECT_EQ(c.str(), "Tensor float32 [4, 8] {Shard(0), Shard(1)} on cpu mesh (dp=2, tp=2)");
  EXPECT_EQ(c.size(-1), 8);
}

TEST_F(RecordTest, InfersARepeatedCallOnlyOnce) {
  Tensor a = make({4, 6}, on({Shard(0), Replicate()}));
  relu(a);
  const int before = num_inferences;
  const uint64_t hits = cache().hits();
  const size_t specs = cache().num_specs();
  for (int i = 0; i < 100; ++i) relu(a);
  EXPECT_EQ(num_inferences, before);
  EXPECT_EQ(cache().hits(), hits + 100);
  EXPECT_EQ(cache().num_specs(), specs);
}

struct WordAttrs {
  std::string word;
  bool flag = false;
  std::vector<int64_t> list;
  template <class V>
  void fields(V& v) {
    v("word", word);
    v("flag", flag);
    v("list", list);
  }
};

TEST_F(RecordTest, EncodesAttributesOfACallAsInASpecHoweverLong) {
  for (size_t length : {0u, 1u, 60u, 78u, 79u, 80u, 81u, 500u}) {
    for (size_t items : {0u, 1u, 20u}) {
      const WordAttrs attributes{std::string(length, 'w'), true, std::vector<int64_t>(items, 7)};
      EXPECT_EQ(CallAttributes(attributes).bytes(), encode_attributes(attributes)) << length << " " << items;
    }
  }
}

// An operator with attributes of any bytes.
const OperatorDef& bytes_op() {
  static OperatorDef* const op = [] {
    auto* def = new OperatorDef;  // lives as long as the process, like any operator
    def->name = "bytes";
    def->attributes.decode = [](const std::string&) { return std::shared_ptr<const void>(); };
    def->infer = [](const InferContext& context) {
      return std::vector<OutputMeta>{{context.shape(0), context.dtype(0)}};
    };
    OperatorRegistry::global().add(*def);
    return def;
  }();
  return *op;
}

TEST_F(RecordTest, TellsAttributesOfAnyLengthApart) {
  Tensor a = make({4, 6}, on({Shard(0), Replicate()}));
  std::set<const OperatorSpec*> specs;
  for (size_t length = 0; length < 40; ++length) {
    for (size_t changed = 0; changed <= length; ++changed) {
      std::string bytes(length, 'x');
      if (changed < length) bytes[changed] = 'y';
      const Tensor* input = &a;
      Tensor result;
      record_call({.op = bytes_op(), .attributes = bytes, .inputs = {&input, 1}, .output_layouts = {&a.layout(), 1}},
                  {&result, 1}, Where::current());
      const OperatorSpec* spec = result.value()->origin().spec;
      EXPECT_EQ(spec->attributes, bytes);
      EXPECT_TRUE(specs.insert(spec).second) << length << " " << changed;
    }
  }
}

TEST_F(RecordTest, InfersAnewForOtherAttributesShapesLayoutsAndPolicies) {
  Tensor a = make({4, 6}, on({Shard(0), Replicate()}));
  relu(a);
  auto inferred = [&](auto call) {
    const size_t before = cache().num_entries();
    call();
    return cache().num_entries() - before;
  };
  EXPECT_EQ(inferred([&] { relu(a); }), 0u);
  EXPECT_EQ(inferred([&] { record(relu_op, NumberAttrs{1}, {&a}, Where::current()); }), 1u);
  EXPECT_EQ(inferred([&] { record(relu_op, NumberAttrs{1}, {&a}, Where::current()); }), 0u);
  Tensor other_shape = make({4, 7}, on({Shard(0), Replicate()})),
         other_layout = make({4, 6}, on({Replicate(), Shard(0)}));
  EXPECT_EQ(inferred([&] { relu(other_shape); }), 1u);
  EXPECT_EQ(inferred([&] { relu(other_layout); }), 1u);
  client_.set_implicit_redistribution(false);
  EXPECT_EQ(inferred([&] { relu(a); }), 1u);
}

TEST_F(RecordTest, StaysRightWhenTheCacheGrows) {
  std::vector<Tensor> inputs;
  for (int64_t n = 1; n <= 600; ++n) inputs.push_back(make({n}, on({Replicate(), Replicate()})));
  for (int round = 0; round < 2; ++round) {
    for (const Tensor& input : inputs) EXPECT_EQ(relu(input).shape(), input.shape());
  }
  EXPECT_EQ(cache().num_entries(), 1200u);
}

TEST_F(RecordTest, ACacheThatIsFullInfersAnewAndKnowsItsSpecs) {
  constexpr size_t kMost = 16;
  InferenceCache full(8, kMost);
  std::vector<const TensorMeta*> metas;
  for (int64_t n = 1; n <= 40; ++n) metas.push_back(intern_meta({n}, kFloat32, Layout::replicated(mesh_)));
  const CallAttributes attributes(NumberAttrs{0});
  const auto infer = [&](const TensorMeta* const& input) -> const Inference& {
    return full.get({&relu_op, attributes.bytes(), {&input, 1}, {}, ConversionPolicy::kLocal}, {});
  };
  std::vector<const OperatorSpec*> specs;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < metas.size(); ++i) {
      const Inference& inference = infer(metas[i]);
      ASSERT_EQ(inference.spec->outputs.at(0), metas[i]);
      if (round == 0) specs.push_back(inference.spec);
      EXPECT_EQ(inference.spec, specs[i]) << "nodes know it by another number";
      EXPECT_LE(full.num_entries(), kMost);
    }
  }
  EXPECT_EQ(full.num_specs(), metas.size());
  EXPECT_EQ(full.hits(), 0u);

  UsualKey key;
  key.set_input(0, metas[0]);
  key.set_call(relu_op, attributes.bytes(), ConversionPolicy::kLocal);
  full.remember(key, infer(metas[0]));
  EXPECT_NE(full.find(key), nullptr);
  for (size_t i = 1; i <= kMost; ++i) infer(metas[i]);
  EXPECT_EQ(full.find(key), nullptr) << "it was forgotten";
}

TEST_F(RecordTest, TakesASlotAgainAfterItsReleaseIsRecorded) {
  Tensor b = make({4}, on({Replicate(), Replicate()}));
  Tensor y = make({4}, on({Replicate(), Replicate()}));
  for (int i = 0; i < 1000; ++i) y = add(y, b);
  OperandId highest = 0;
  wait();
  for (const LoggedRecord& record : runtime_->log()) {
    for (OperandId operand : record.outputs) highest = std::max(highest, operand);
  }
  EXPECT_LE(highest, 4u);
  EXPECT_EQ(runtime_->num_live(), 2u);
}

TEST_F(RecordTest, LetsReleasesRideInTheNextRecord) {
  Tensor b = make({4}, on({Replicate(), Replicate()}));
  const OperandId slot = make({4}, on({Replicate(), Replicate()})).value()->slot();
  Tensor c = relu(b);
  wait();
  const std::vector<LoggedRecord> log = runtime_->log();
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(log[2].op, "relu");
  EXPECT_EQ(log[2].releases, std::vector<OperandId>{slot});
}

TEST_F(RecordTest, GivesManyReleasesBackWithoutWaitingForAnotherCall) {
  {
    std::vector<Tensor> many;
    for (int i = 0; i < 5000; ++i) many.push_back(make({1}, on({Replicate(), Replicate()})));
    wait();
    EXPECT_EQ(runtime_->num_live(), 5000u);
  }
  for (int i = 0; runtime_->num_live() > 1024; ++i) {
    ASSERT_LT(i, 1000000);
    std::this_thread::yield();
  }
  EXPECT_EQ(releases().size(), 5000u);
  EXPECT_EQ(runtime_->num_live(), 0u);
}

TEST_F(RecordTest, RecordsReleasesOfOtherThreadsFromTheUserThread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    std::vector<Tensor> handles;
    for (int j = 0; j < 500; ++j) handles.push_back(make({1}, on({Replicate(), Replicate()})));
    threads.emplace_back([handles = std::move(handles)]() mutable {
      while (!handles.empty()) handles.pop_back();
    });
  }
  Tensor y = make({1}, on({Replicate(), Replicate()}));
  for (int i = 0; i < 200; ++i) y = relu(y);
  for (std::thread& thread : threads) thread.join();
  wait();
  EXPECT_EQ(runtime_->num_live(), 1u);
}

TEST_F(RecordTest, InsertsConversionsAsOperatorsOfTheirOwn) {
  Tensor sharded = make({4, 6}, on({Shard(0), Replicate()})), whole = make({4, 6}, on({Replicate(), Replicate()}));
  Tensor sum = add(sharded, whole);
  EXPECT_EQ(sum.placements(), (Placements{Shard(0), Replicate()}));
  wait();
  EXPECT_EQ(runtime_->operators(), (std::vector<std::string>{"make", "make", "redistribute", "add"}));
  const std::vector<LoggedRecord> log = runtime_->log();
  EXPECT_EQ(log[2].inputs, std::vector<OperandId>{whole.value()->slot()});
  EXPECT_EQ(log[2].spec->outputs[0]->layout, sharded.layout());
  EXPECT_EQ(log[3].inputs[1], log[2].outputs[0]);
  EXPECT_EQ(log[2].where.line, log[3].where.line);
}

TEST_F(RecordTest, ReportsTheLineOfTheCallAndOfTheOutermostScope) {
  const uint32_t line = std::source_location::current().line();
  Tensor a = make({4}, on({Replicate(), Replicate()}));
  auto layer = [&](Where where = Where::current()) {
    SourceScope scope(where);
    auto inner = [&](Where inner_where = Where::current()) {
      SourceScope inner_scope(inner_where);
      return relu(a);
    };
    return inner();
  };
  layer();
  relu(a);
  wait();
  const std::vector<LoggedRecord> log = runtime_->log();
  EXPECT_EQ(log[0].where.line, line + 1);
  EXPECT_EQ(log[1].where.line, line + 10);
  EXPECT_EQ(log[2].where.line, line + 11);
  EXPECT_TRUE(std::string(log[0].where.file).ends_with("tests/client/record_test.cc"));
}

TEST_F(RecordTest, WritesCallsWithManyOperandsAndScalars) {
  std::vector<Tensor> inputs;
  for (int i = 0; i < 100; ++i) inputs.push_back(make({2}, on({Replicate(), Shard(0)})));
  const Scalar scalars[] = {Scalar::of(1.5), Scalar::of_int(-3)};
  const Layout layout = Layout::replicated(mesh_);
  std::vector<Tensor> result = record_list(many_op, NoAttrs{}, inputs, 1, Where::current(),
                                           {.scalars = scalars, .output_layouts = {&layout, 1}});
  EXPECT_EQ(result[0].shape(), Shape{});
  wait();
  const LoggedRecord call = runtime_->log()[100];
  ASSERT_EQ(call.inputs.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(call.inputs[i], inputs[i].value()->slot());
  ASSERT_EQ(call.scalars.size(), 2u);
  EXPECT_EQ(call.scalars[0].as_double(), 1.5);
  EXPECT_EQ(call.scalars[1].as_int(), -3);
}

TEST_F(RecordTest, WaitsAtTheCreditLimitAndGoesOn) {
  runtime_->hold();
  Tensor b = make({4}, on({Replicate(), Replicate()})), y = b;
  std::thread later([&] { runtime_->release(); });
  for (int i = 0; i < 40000; ++i) y = add(y, b);
  later.join();
  wait();
  EXPECT_EQ(runtime_->operators().size(), 40001u);
}

}  // namespace
}  // namespace dtorch::testing
