// Runs of elementwise operators on a stream: when they are one kernel, what gets memory, failures, replays.
#include <gtest/gtest.h>

#include "ops/def/prepared_kernel.h"
#include "runtime/worker/prepared_check.h"
#include "tests/worker/cluster.h"

namespace dtorch::testing_worker {
namespace {

const DeviceMesh one_device = init_device_mesh("cpu", {1});
const DeviceMesh two_devices = init_device_mesh("cpu", {2});

// What the operators below were asked, all runs together; set back by each test.
struct Counts {
  std::atomic<int> on_blocks{0}, on_tensors{0}, kernel{0};
  std::atomic<bool> lies{false}, throws_on_blocks{false};
};
Counts counts;

int64_t* items(const NativeTensor& tensor) { return reinterpret_cast<int64_t*>(tensor.data()); }

// a + b, or a + number, which must not be negative; b may be one element. The output may be a.
class Sum final : public ElementwisePrepared {
 public:
  explicit Sum(const LocalOperator& local) : num_elements_(local.output_boxes[0].num_elements()) {
    may_overwrite_ = 1;
    if (local.input_boxes.size() > 1) step_ = local.input_boxes[1].num_elements() == num_elements_ ? 1 : 0;
  }
  bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output,
           std::span<const Scalar> scalars) override {
    ++counts.on_tensors;
    set_scalars(scalars);
    add(items(output), items(*inputs[0]), inputs.size() > 1 ? items(*inputs[1]) : nullptr);
    return true;
  }
  void set_scalars(std::span<const Scalar> scalars) override {
    if (scalars.empty()) return;
    number_ = scalars[0].as_int();
    if (number_ < 0) throw std::runtime_error("the number is negative");
  }
  void run_on(std::byte* output, std::span<std::byte* const> inputs) override {
    ++counts.on_blocks;
    if (counts.throws_on_blocks) throw std::runtime_error("block boom");
    const auto at = [](std::byte* memory) { return reinterpret_cast<int64_t*>(memory); };
    add(at(output), at(inputs[0]), inputs.size() > 1 ? at(inputs[1]) : nullptr);
    if (counts.lies) ++*at(output);
  }

 private:
  void add(int64_t* output, const int64_t* a, const int64_t* b) const {
    for (int64_t i = 0; i < num_elements_; ++i) output[i] = a[i] + (b ? b[i * step_] : number_);
  }
  const int64_t num_elements_;
  int64_t step_ = 1;
  int64_t number_ = 0;
};

void sum_kernel(KernelContext& context) {
  ++counts.kernel;
  const int64_t number = context.num_inputs() > 1 ? 0 : context.scalar(0).as_int();
  if (number < 0) throw std::runtime_error("the number is negative");
  NativeTensor result = NativeTensor::empty(context.output_box(0).size, kInt64);
  const int64_t step = context.num_inputs() > 1 && context.input(1).num_elements() == result.num_elements() ? 1 : 0;
  for (int64_t i = 0; i < result.num_elements(); ++i)
    items(result)[i] =
        items(context.input(0))[i] + (context.num_inputs() > 1 ? items(context.input(1))[i * step] : number);
  context.output(0) = std::move(result);
}

const OperatorDef* sum() {
  static const OperatorDef* op = [] {
    auto* def = new OperatorDef;  // lives as long as the process, like any operator
    def->name = "test.sum";
    def->kernel = sum_kernel;
    def->elementwise = true;
    def->prepare = [](const LocalOperator& local) -> std::unique_ptr<PreparedKernel> {
      return std::make_unique<Sum>(local);
    };
    OperatorRegistry::global().add(*def);
    return def;
  }();
  return op;
}

class FusedCall : public ::testing::Test {
 protected:
  FusedCall() {
    sum();  // registered before any node starts
    counts.on_blocks = counts.on_tensors = counts.kernel = 0;
    counts.lies = counts.throws_on_blocks = false;
  }
  ~FusedCall() override { set_check_prepared(false); }
  std::map<int64_t, int64_t> all(int64_t value, int64_t count = kCount) const {
    std::map<int64_t, int64_t> values;
    for (int64_t i = 0; i < count; ++i) values[i] = value;
    return values;
  }
  void fill(PieceWriter& writer, OperandId slot, int64_t value) const {
    writer.call(ops().fill, {}, {{slot, x_}}, {value});
  }
  void add(PieceWriter& writer, OperandId a, OperandId b, OperandId to) const {
    writer.call(sum(), {{a, x_}, {b, x_}}, {{to, x_}});
  }
  void add_number(PieceWriter& writer, OperandId a, int64_t number, OperandId to) const {
    writer.call(sum(), {{a, x_}}, {{to, x_}}, {number});
  }
  void expect_value(Cluster& cluster, PieceWriter& writer, OperandId slot, int64_t value) const {
    static int64_t next_read = 1;
    const int64_t number = next_read++;
    writer.call(ops().read, {{slot, x_}}, {}, {number, -1});
    cluster.wait_for(cluster.send(writer));
    EXPECT_EQ(cluster.read(static_cast<uint64_t>(number), {kCount}), all(value)) << "slot " << slot;
  }
  static constexpr int64_t kCount = 5;
  const TensorMeta* x_ = meta(one_device, {kCount}, {Replicate()});
};

TEST_F(FusedCall, AChainIsOneKernelWhoseTemporariesHaveNoMemory) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 5);
  fill(writer, 1, 2);
  cluster.wait_for(cluster.send(writer.urgent()));
  const int64_t before = cluster.last_ack(0).peak_bytes;
  for (OperandId id = 2; id < 12; ++id) add(writer, id == 2 ? 0 : last(id - 1), 1, id);
  cluster.wait_for(cluster.send(writer.fuse(10).urgent()));
  EXPECT_EQ(cluster.last_ack(0).kernels_run, 3);
  EXPECT_EQ(cluster.last_ack(0).peak_bytes, before + 8 * kCount);
  EXPECT_EQ(counts.on_blocks, 10);
  EXPECT_EQ(counts.on_tensors, 0);
  expect_value(cluster, writer, 11, 25);
  expect_value(cluster, writer, 0, 5);
  EXPECT_TRUE(cluster.errors().empty());
}

TEST_F(FusedCall, WhatOthersNeedIsThereAfterwards) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  add(writer, 0, 0, 1);         // 2, wanted
  add(writer, 1, 0, 2);         // 3
  add(writer, last(2), 1, 3);   // 5
  add_number(writer, 3, 7, 2);  // 12: the slot again
  cluster.send(writer.fuse(4));
  expect_value(cluster, writer, 1, 2);
  expect_value(cluster, writer, 2, 12);
  expect_value(cluster, writer, 3, 5);
  expect_value(cluster, writer, 0, 1);
  EXPECT_EQ(counts.on_blocks, 4);
}

TEST_F(FusedCall, TheResultGoesOverAnInputThatDiesWhenNobodyReadsItLater) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  fill(writer, 1, 2);
  cluster.wait_for(cluster.send(writer.urgent()));
  const int64_t held = cluster.last_ack(0).bytes_in_use;
  add(writer, last(0), 1, 2);        // 3
  add(writer, last(2), last(1), 3);  // 5: 0 may go
  cluster.wait_for(cluster.send(writer.fuse(2).urgent()));
  EXPECT_EQ(cluster.last_ack(0).peak_bytes, held) << "nothing new";
  expect_value(cluster, writer, 3, 5);
  // 3 is read after 4, which is wanted, is written.
  add(writer, 3, 3, 4);        // 10
  add(writer, 4, last(3), 5);  // 15
  cluster.send(writer.fuse(2));
  expect_value(cluster, writer, 4, 10);
  expect_value(cluster, writer, 5, 15);
  // Somebody else holds it.
  writer.call(ops().redistribute, {{4, x_}}, {{6, x_}});
  add(writer, last(4), 5, 7);  // 25
  add(writer, last(7), 5, 8);  // 40
  cluster.send(writer.fuse(2));
  expect_value(cluster, writer, 8, 40);
  expect_value(cluster, writer, 6, 10);
  EXPECT_EQ(counts.on_tensors, 0);
}

TEST_F(FusedCall, LargeTensorsGoBlockByBlock) {
  Cluster cluster({0, 0});
  const int64_t count = 2 * 5000;
  const TensorMeta* large = meta(two_devices, {count}, {Shard(0)});
  const TensorMeta* one = meta(two_devices, {1}, {Replicate()});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, large}}).call(ops().fill, {}, {{1, one}}, {100});
  writer.call(sum(), {{last(0), large}, {1, one}}, {{2, large}});
  writer.call(sum(), {{2, large}, {2, large}}, {{3, large}});
  writer.call(sum(), {{last(3), large}}, {{4, large}}, {1});
  writer.fuse(3).call(ops().read, {{4, large}}, {}, {1, -1}).call(ops().read, {{2, large}}, {}, {2, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_GT(counts.on_blocks, 2 * 3) << "several blocks a device";
  const std::map<int64_t, int64_t> result = cluster.read(1, {count}), between = cluster.read(2, {count});
  ASSERT_EQ(result.size(), static_cast<size_t>(count));
  for (const auto& [i, value] : result) ASSERT_EQ(value, 2 * (i + 100) + 1) << i;
  for (const auto& [i, value] : between) ASSERT_EQ(value, i + 100) << i;
  EXPECT_EQ(counts.on_tensors + counts.kernel, 0);
}

TEST_F(FusedCall, AFailureIsTheMembersAndPoisonsWhatDependsOnIt) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  cluster.send(writer);
  add_number(writer, 0, 3, 1);        // 4
  add_number(writer, 0, -1, 2);       // fails
  add(writer, 1, last(2), 3);         // poisoned
  add_number(writer, last(0), 5, 4);  // 6
  add(writer, 4, 1, 5);               // 10
  const Sequence sequence = cluster.send(writer.fuse(5));
  cluster.wait_for(sequence);
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].op_index, 1u);
  EXPECT_EQ(cluster.errors()[0].message, "the number is negative");
  expect_value(cluster, writer, 1, 4);
  expect_value(cluster, writer, 4, 6);
  expect_value(cluster, writer, 5, 10);
  writer.call(ops().read, {{3, x_}}, {}, {900, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.num_boxes(900), 0u);
  EXPECT_EQ(cluster.errors().size(), 1u);
}

TEST_F(FusedCall, APoisonedInputPoisonsWhatDependsOnItOnly) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  writer.call(ops().fail, {}, {{1, x_}});
  add(writer, 0, 0, 2);        // 2
  add(writer, 2, last(1), 3);  // poisoned
  add(writer, 2, 0, 4);        // 3
  cluster.wait_for(cluster.send(writer.fuse(3)));
  ASSERT_EQ(cluster.errors().size(), 1u);
  expect_value(cluster, writer, 2, 2);
  expect_value(cluster, writer, 4, 3);
  writer.call(ops().read, {{3, x_}}, {}, {901, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.num_boxes(901), 0u);
}

TEST_F(FusedCall, AKernelThatFailsBeforeAnInputIsGoneIsDoneOneByOne) {
  counts.throws_on_blocks = true;
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  add(writer, 0, 0, 1);
  add(writer, last(1), 0, 2);
  cluster.send(writer.fuse(2));
  expect_value(cluster, writer, 2, 3);
  EXPECT_TRUE(cluster.errors().empty());
  EXPECT_EQ(counts.on_tensors, 2);
}

TEST_F(FusedCall, AKernelThatFailsAfterwardsIsReportedAndItsResultsArePoisoned) {
  counts.throws_on_blocks = true;
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  cluster.send(writer);
  add(writer, 0, 0, 1);
  add(writer, last(0), last(1), 2);  // over 0
  cluster.wait_for(cluster.send(writer.fuse(2)));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].message, "block boom");
  EXPECT_EQ(cluster.errors()[0].op_index, 1u);
  writer.call(ops().read, {{2, x_}}, {}, {902, -1}).release({2});
  cluster.wait_for(cluster.send(writer.urgent()));
  EXPECT_EQ(cluster.num_boxes(902), 0u);
  EXPECT_EQ(cluster.last_ack(0).bytes_in_use, 0);
}

TEST_F(FusedCall, WaitsForAValueThatIsOnItsWay) {
  Cluster cluster({0, 1});
  const TensorMeta* whole = meta(two_devices, {4}, {Replicate()});
  const TensorMeta* cut = meta(two_devices, {4}, {Shard(0)});
  PieceWriter writer;
  writer.call(ops().iota, {}, {{0, cut}}).call(ops().redistribute, {{0, cut}}, {{1, whole}});
  writer.call(sum(), {{1, whole}}, {{2, whole}}, {10});
  writer.call(sum(), {{last(2), whole}, {last(1), whole}}, {{3, whole}});
  writer.fuse(2).call(ops().read, {{3, whole}}, {}, {1, -1});
  cluster.wait_for(cluster.send(writer));
  EXPECT_EQ(cluster.read(1, {4}), (std::map<int64_t, int64_t>{{0, 10}, {1, 12}, {2, 14}, {3, 16}}));
  EXPECT_EQ(counts.on_blocks, 4);
}

TEST_F(FusedCall, CallsWithoutAPreparedKernelAreRunBetweenTheOthers) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  add(writer, 0, 0, 1);                                         // 2
  add(writer, last(1), 0, 2);                                   // 3
  writer.call(ops().add, {{last(2), x_}, {0, x_}}, {{3, x_}});  // 4, not prepared
  add(writer, 3, 3, 4);                                         // 8
  add(writer, last(4), last(3), 5);                             // 12
  cluster.send(writer.fuse(5));
  expect_value(cluster, writer, 5, 12);
  EXPECT_EQ(counts.on_blocks, 4);
  EXPECT_EQ(counts.on_tensors, 0);
}

TEST_F(FusedCall, InAReplayItIsTheSameWithOtherSlotsAndScalars) {
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  fill(writer, 1, 10);
  cluster.send(writer);
  add_number(writer, last(0), 2, 2);
  add(writer, last(2), 1, 3);
  cluster.define(writer.fuse(2), 3, 2);
  Replay replay;
  replay.graph = writer.graph();
  replay.id = 3;
  replay.end_call = 2;
  replay.ends = true;
  replay.operands = {0, 1, 5};
  cluster.replay(replay);  // 1 + 2 + 10
  replay.operands = {5, 1, 0};
  replay.new_varying = {0};
  replay.scalars = {Scalar::of_int(4)};
  cluster.wait_for(cluster.replay(replay));  // 13 + 4 + 10
  expect_value(cluster, writer, 0, 27);
  EXPECT_EQ(counts.on_blocks, 4);
  replay.operands = {0, 1, 0};
  replay.new_varying.clear();
  replay.scalars = {Scalar::of_int(-4)};
  cluster.wait_for(cluster.replay(replay));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_EQ(cluster.errors()[0].op_index, 0u);
}

TEST_F(FusedCall, TheCheckFindsAFusedKernelThatGivesOtherBytes) {
  set_check_prepared(true);
  Cluster cluster({0});
  PieceWriter writer;
  fill(writer, 0, 1);
  add(writer, 0, 0, 1);
  add(writer, last(1), 0, 2);
  cluster.send(writer.fuse(2));
  expect_value(cluster, writer, 2, 3);
  EXPECT_EQ(counts.kernel, 2);
  EXPECT_TRUE(cluster.errors().empty());
  counts.lies = true;
  add(writer, 0, 0, 1);
  add(writer, last(1), 0, 2);
  cluster.wait_for(cluster.send(writer.fuse(2)));
  ASSERT_EQ(cluster.errors().size(), 1u);
  EXPECT_NE(cluster.errors()[0].message.find("other bytes"), std::string::npos);
  EXPECT_EQ(cluster.errors()[0].op_index, 1u);
}

}  // namespace
}  // namespace dtorch::testing_worker
