// Calls through prepared kernels: when they run, what they overwrite, what becomes of memory, failures.
#include <gtest/gtest.h>

#include "ops/def/prepared_kernel.h"
#include "runtime/worker/native/native_memory.h"
#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/prepared_check.h"
#include "runtime/worker/tensor_pool.h"
#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});

// What the kernels below were asked, all runs together; set back by each test.
struct Counts {
  std::atomic<int> prepared{0}, run{0}, run_on_memory{0}, overwritten{0}, kernel{0};
  std::atomic<bool> declines{false}, throws{false}, lies{false};
};
Counts counts;
void reset_counts() {
  counts.prepared = counts.run = counts.run_on_memory = counts.overwritten = counts.kernel = 0;
  counts.declines = counts.throws = counts.lies = false;
}

int64_t* items(const NativeTensor& tensor) { return reinterpret_cast<int64_t*>(tensor.data()); }

// a + b, where the output may be a.
class PreparedAdd final : public ElementwisePrepared {
 public:
  // on_memory: a stream that has pointers to all operands gives it these.
  explicit PreparedAdd(const LocalOperator& local, bool on_memory)
      : num_elements_(local.output_boxes[0].num_elements()), on_memory_(on_memory) {
    may_overwrite_ = 1;
  }
  ElementwisePrepared* on_memory() override { return on_memory_ ? this : nullptr; }
  void set_scalars(std::span<const Scalar>) override {}
  void run_on(std::byte* output, std::span<std::byte* const> inputs) override {
    ++counts.run;
    ++counts.run_on_memory;
    if (output == inputs[0]) ++counts.overwritten;
    if (counts.throws) throw std::runtime_error("prepared boom");
    const auto at = [](std::byte* memory) { return reinterpret_cast<int64_t*>(memory); };
    for (int64_t i = 0; i < num_elements_; ++i) at(output)[i] = at(inputs[0])[i] + at(inputs[1])[i];
  }
  bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output, std::span<const Scalar>) override {
    if (counts.declines) return false;
    for (const NativeTensor* input : inputs) {
      if (!input->is_contiguous()) return false;
    }
    ++counts.run;
    if (output.impl() == inputs[0]->impl()) ++counts.overwritten;
    if (counts.throws) throw std::runtime_error("prepared boom");
    const int64_t extra = counts.lies ? 1 : 0;
    for (int64_t i = 0; i < output.num_elements(); ++i)
      items(output)[i] = items(*inputs[0])[i] + items(*inputs[1])[i] + extra;
    return true;
  }

 private:
  const int64_t num_elements_;
  const bool on_memory_;
};

void add_kernel(KernelContext& context) {
  ++counts.kernel;
  NativeTensor result = NativeTensor::empty(context.output_box(0).size, kInt64);
  const NativeTensor a = context.input(0).contiguous(), b = context.input(1).contiguous();
  for (int64_t i = 0; i < result.num_elements(); ++i) items(result)[i] = items(a)[i] + items(b)[i];
  context.output(0) = std::move(result);
}

template <bool kOnMemory>
const OperatorDef* prepared_add_op() {
  static const OperatorDef* op = [] {
    auto* def = new OperatorDef;  // lives as long as the process, like any operator
    def->name = kOnMemory ? "test.add_on_memory" : "test.prepared_add";
    def->kernel = add_kernel;
    def->prepare = [](const LocalOperator& local) -> std::unique_ptr<PreparedKernel> {
      ++counts.prepared;
      return std::make_unique<PreparedAdd>(local, kOnMemory);
    };
    OperatorRegistry::global().add(*def);
    return def;
  }();
  return op;
}

// Every second element of a tensor that holds 7, 8, 9, ...
const OperatorDef* every_second() {
  static const OperatorDef* op = [] {
    auto* def = new OperatorDef;
    def->name = "test.every_second";
    def->kernel = [](KernelContext& context) {
      const int64_t size = context.output_box(0).size[0];
      const NativeTensor all = NativeTensor::empty({2 * size}, kInt64);
      for (int64_t i = 0; i < 2 * size; ++i) items(all)[i] = 7 + i;
      context.output(0) = strided_view(all, {size}, {2}, 0);
    };
    OperatorRegistry::global().add(*def);
    return def;
  }();
  return op;
}

// Parameter: whether the kernel runs on bare memory.
class PreparedCall : public ::testing::TestWithParam<bool> {
 protected:
  PreparedCall() {
    prepared_add_op<true>();  // registered before any node starts
    prepared_add_op<false>();
    every_second();
    reset_counts();
  }
  static const OperatorDef* prepared_add() { return GetParam() ? prepared_add_op<true>() : prepared_add_op<false>(); }
  ~PreparedCall() override { set_check_prepared(false); }
  std::map<int64_t, int64_t> all(int64_t value) const { return {{0, value}, {1, value}, {2, value}}; }
  const TensorMeta* x_ = meta(one_device, {3}, {Replicate()});
};

TEST_P(PreparedCall, IsPreparedOnceForASpecAndRunsInPlaceOfTheKernel) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {5}).call(ops().fill, {}, {{1, x_}}, {2});
  for (OperandId id = 2; id < 12; ++id) writer.call(prepared_add(), {{id - 2, x_}, {1, x_}}, {{id, x_}});
  writer.call(ops().read, {{10, x_}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {3}), all(15));
  EXPECT_EQ(counts.prepared, 1);
  EXPECT_EQ(counts.run, 10);
  EXPECT_EQ(counts.run_on_memory, GetParam() ? 10 : 0);
  EXPECT_EQ(counts.overwritten, 0);
  EXPECT_EQ(counts.kernel, 0);
  EXPECT_EQ(cluster.last_ack(0).kernels_run, 12);
}

TEST_P(PreparedCall, OverwritesAnInputThatDiesAndNobodyElseHolds) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {5}).call(ops().fill, {}, {{1, x_}}, {2});
  writer.call(prepared_add(), {{last(0), x_}, {1, x_}}, {{2, x_}});  // over 0
  writer.call(prepared_add(), {{1, x_}, {last(2), x_}}, {{3, x_}});  // only the first may be overwritten
  writer.call(ops().redistribute, {{3, x_}}, {{4, x_}});             // another name for 3
  writer.call(prepared_add(), {{last(3), x_}, {1, x_}}, {{5, x_}});  // 4 holds it
  writer.call(prepared_add(), {{4, x_}, {last(4), x_}}, {{6, x_}});  // twice the same
  writer.call(ops().read, {{5, x_}}, {}, {1, -1}).call(ops().read, {{6, x_}}, {}, {2, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {3}), all(11));
  EXPECT_EQ(cluster.read(2, {3}), all(18));
  EXPECT_EQ(counts.run, 4);
  EXPECT_EQ(counts.overwritten, 1);
}

TEST_P(PreparedCall, TheKernelDoesWhatThePreparedOneDeclines) {
  counts.declines = true;
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {5});
  writer.call(prepared_add_op<false>(), {{0, x_}, {last(0), x_}}, {{1, x_}}).call(ops().read, {{1, x_}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {3}), all(10));
  EXPECT_EQ(counts.kernel, 1);
}

TEST_P(PreparedCall, WhatIsNotContiguousIsTheKernels) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(every_second(), {}, {{0, x_}}).call(ops().fill, {}, {{1, x_}}, {1});
  writer.call(prepared_add(), {{1, x_}, {0, x_}}, {{2, x_}});        // 8, 10, 12
  writer.call(prepared_add(), {{last(0), x_}, {1, x_}}, {{3, x_}});  // the same
  writer.call(prepared_add(), {{2, x_}, {3, x_}}, {{4, x_}}).call(ops().read, {{4, x_}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {3}), (std::map<int64_t, int64_t>{{0, 16}, {1, 20}, {2, 24}}));
  EXPECT_EQ(counts.kernel, 2);
  EXPECT_EQ(counts.run, 1);
}

TEST_P(PreparedCall, WhatWasLookedAtOnceAndReplacedIsLookedAtAgain) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {5}).call(prepared_add(), {{0, x_}, {0, x_}}, {{1, x_}});  // 10
  writer.call(ops().redistribute, {{last(0), x_}}, {{2, x_}});                                      // 5
  writer.call(ops().fill, {}, {{0, x_}}, {3});
  writer.call(prepared_add(), {{0, x_}, {1, x_}}, {{3, x_}});        // 13
  writer.call(prepared_add(), {{last(3), x_}, {2, x_}}, {{0, x_}});  // over 3: 18
  writer.release({1}).call(every_second(), {}, {{1, x_}});
  writer.call(prepared_add(), {{0, x_}, {1, x_}}, {{3, x_}}).call(ops().read, {{3, x_}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {3}), (std::map<int64_t, int64_t>{{0, 25}, {1, 27}, {2, 29}}));
  EXPECT_EQ(counts.overwritten, 1);
  EXPECT_EQ(counts.kernel, 1);
}

TEST_P(PreparedCall, PoisonPassesThroughAndAFailureIsReportedLikeAnyKernels) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {5}).call(ops().fail, {}, {{1, x_}});
  writer.call(prepared_add(), {{0, x_}, {last(1), x_}}, {{2, x_}}).call(prepared_add(), {{2, x_}, {0, x_}}, {{3, x_}});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(counts.run, 0);
  counts.throws = true;
  writer.call(prepared_add(), {{last(0), x_}, {0, x_}}, {{1, x_}}).call(ops().read, {{1, x_}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 2u);
  EXPECT_EQ(cluster.errors()[1].message, "prepared boom");
  EXPECT_EQ(cluster.num_boxes(1), 0u);
  counts.throws = false;
  writer.call(ops().fill, {}, {{1, x_}}, {1}).call(prepared_add(), {{1, x_}, {1, x_}}, {{0, x_}});
  writer.call(ops().read, {{0, x_}}, {}, {2, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(2, {3}), all(2));
}

TEST_P(PreparedCall, ResultsThatDieAreUsedAgainAndNotCountedAsInUse) {
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {1});
  cluster.wait_for(cluster.send(writer.urgent()));
  const int64_t before = cluster.last_ack(0).bytes_in_use;
  EXPECT_EQ(before, 24);
  for (int i = 0; i < 100; ++i) writer.call(prepared_add(), {{0, x_}, {0, x_}}, {{1, x_}}).release({1});
  cluster.wait_for(cluster.send(writer.urgent()));
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, before);
  EXPECT_EQ(cluster.last_ack(0).peak_bytes, before + 24);
  EXPECT_EQ(counts.run, 100);
}

TEST_P(PreparedCall, TheCheckFindsAPreparedKernelThatGivesOtherBytes) {
  set_check_prepared(true);
  Cluster cluster({0});
  PieceWriter writer;
  writer.call(ops().fill, {}, {{0, x_}}, {5}).call(prepared_add(), {{last(0), x_}, {0, x_}}, {{1, x_}});
  writer.call(ops().read, {{1, x_}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {3}), all(10));
  EXPECT_EQ(counts.kernel, 1);
  EXPECT_TRUE(cluster.errors().empty());
  counts.lies = true;
  writer.call(prepared_add(), {{1, x_}, {1, x_}}, {{2, x_}});
  cluster.wait_for(cluster.send(writer));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_NE(cluster.errors()[0].message.find("other bytes"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(, PreparedCall, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "OnMemory" : "OnTensors"; });

TEST(TensorPoolTest, KeepsSmallTensorsUpToItsLimitAndGivesThemAgain) {
  MemoryCounter& memory = *new_memory_counter();
  set_memory_counter(&memory);
  {
    TensorPool pool(memory);
    TensorPool::Kind& kind = pool.kind_of({4, 4}, kFloat32);
    EXPECT_EQ(&pool.kind_of({4, 4}, kFloat32), &kind);
    EXPECT_NE(&pool.kind_of({4, 4}, kInt32), &kind);
    EXPECT_NE(&pool.kind_of({16}, kFloat32), &kind);
    NativeTensor tensor = pool.take(kind);
    void* const impl = tensor.impl();
    EXPECT_EQ(memory.in_use, 64);
    pool.give_back(kind, std::move(tensor));
    EXPECT_EQ(memory.in_use, 0);
    tensor = pool.take(kind);
    EXPECT_EQ(tensor.impl(), impl);
    EXPECT_EQ(memory.in_use, 64);
    pool.give_back(kind, std::move(tensor));

    TensorPool::Kind& large = pool.kind_of({TensorPool::kMaxTensorBytes + 1}, kUInt8);
    pool.give_back(large, pool.take(large));
    EXPECT_TRUE(large.waiting.empty());

    TensorPool::Kind& full = pool.kind_of({TensorPool::kMaxTensorBytes}, kUInt8);
    std::vector<NativeTensor> many;
    for (int64_t bytes = 0; bytes <= TensorPool::kMaxBytes; bytes += full.num_bytes) many.push_back(pool.take(full));
    for (NativeTensor& each : many) pool.give_back(full, std::move(each));
    EXPECT_EQ(memory.in_use, 0);
    EXPECT_LE(static_cast<int64_t>(full.waiting.size()) * full.num_bytes + 64, TensorPool::kMaxBytes);
  }
  EXPECT_EQ(memory.in_use, 0);
  set_memory_counter(nullptr);
}

}  // namespace
}  // namespace dtorch::testing_worker
