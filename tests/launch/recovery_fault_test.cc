// What goes wrong while work is done again: failures that are new, nodes that don't answer, another loss; and what the
// program may do with memory that it has handed over.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "dtorch/nn.h"
#include "io/checkpoint_parts.h"
#include "ops/operator_list.h"
#include "runtime/client/record.h"
#include "tests/launch/recovery_job.h"

namespace dtorch {
namespace {

using test::Fault;
using test::RecoveryJob;

std::atomic<bool> fails_now{false};

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kNo);
}

void fail_later_kernel(KernelContext& context) {
  if (fails_now.load()) throw std::runtime_error("the file is gone");
  context.output(0) = context.input(0);
}

constinit OperatorDef fail_later_op = {.name = "fail_later",
                                       .signature = "fail_later(x) -> Tensor",
                                       .infer = infer,
                                       .rule = rule,
                                       .kernel = fail_later_kernel,
                                       .saved_inputs = 0};

std::atomic<int> num_effects{0};

std::vector<OutputMeta> no_outputs(const InferContext&) { return {}; }
std::optional<std::vector<Layout>> no_layouts(const InferContext&, std::span<const OutputMeta>, std::string*) {
  return std::vector<Layout>{};
}

void count_up_kernel(KernelContext&) { num_effects.fetch_add(1); }

constinit OperatorDef count_up_op = {.name = "count_up",
                                     .signature = "counts",
                                     .infer = no_outputs,
                                     .layouts = no_layouts,
                                     .kernel = count_up_kernel,
                                     .klass = OperatorClass::kEffect,
                                     .placement_class = PlacementClass::kAnyLayout,
                                     .saved_inputs = 0};

// With a number that is no session's.
void count_up(const Tensor& x) {
  const Scalar scalars[] = {Scalar::of_int(5)};
  record_many<0>(count_up_op, NoAttrs{}, {&x}, Where::current(), {.scalars = scalars});
}

class RecoveryFault : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_builtin_operators();
    OperatorRegistry& registry = OperatorRegistry::global();
    for (OperatorDef* def : {&fail_later_op, &count_up_op}) {
      if (!registry.find(def->name)) registry.add(*def);
    }
  }
  void SetUp() override {
    fails_now.store(false);
    num_effects.store(0);
  }
  // Without snapshots: all that was sent is in the log.
  static RuntimeOptions options_for() {
    RuntimeOptions options;
    options.devices = 4;
    options.recover = true;
    options.snapshot_every = 1000;
    return options;
  }
  static TensorOptions rows() { return {.mesh = init_device_mesh("cpu", {4}), .placements = {Shard(0)}}; }
};

TEST_F(RecoveryFault, AFailureThatIsNewWhenWorkIsDoneAgainEndsTheJob) {
  RecoveryJob job(3, options_for());
  job.run([&](Client&) {
    const Tensor two = full({4}, 2.0, rows());
    const Tensor x = record(fail_later_op, NoAttrs{}, {&two}, Where::current());
    EXPECT_EQ(x.to_host().to_vector<float>(), std::vector<float>(4, 2.0f));
    fails_now.store(true);
    job.kill(1);
    static_cast<void>((x + 1.0).to_host());
  });
  EXPECT_NE(job.failure().find("hadn't before: the file is gone"), std::string::npos) << job.failure();
}

TEST_F(RecoveryFault, AFailureThatTheProgramKnowsIsNoNewOne) {
  RecoveryJob job(3, options_for());
  job.run([&](Client&) {
    const Tensor x = full({4}, 2.0, rows());
    fails_now.store(true);
    const Tensor y = record(fail_later_op, NoAttrs{}, {&x}, Where::current());
    EXPECT_THROW(y.to_host(), RuntimeFault);
    job.kill(1);
    EXPECT_EQ((x + 1.0).to_host().to_vector<float>(), std::vector<float>(4, 3.0f));
    EXPECT_THROW((y + 1.0).to_host(), RuntimeFault);
  });
  EXPECT_EQ(job.failure(), "");
  EXPECT_EQ(job.stats().epoch, 2u);
}

// Turns of a few pieces each.
void turns(Tensor& x, int count, std::vector<float>& values) {
  for (int turn = 0; turn < count; ++turn) {
    x = x * 0.5 + 1.0;
    values.push_back(x.to_host().at<float>(0));
  }
}

// Optimizer steps until one snapshot is committed; x is the same afterwards.
void step_until_snapshot(const RecoveryJob& job, const Tensor& x) {
  const nn::Parameter parameter(full({4, 4}, 1.0, {.mesh = x.mesh(), .placements = {Shard(0)}}));
  optim::SGD optimizer({parameter}, {.lr = 0.5});
  for (int step = 0; step < 1000 && job.num_snapshots() == 0; ++step) {
    optimizer.step();
    static_cast<void>(x.to_host());
  }
  EXPECT_GT(job.num_snapshots(), 0);
}

TEST_F(RecoveryFault, TheDeadlineEndsARecoveryThatWaitsForASilentNode) {
  RuntimeOptions options = options_for();
  options.inflight_operators = 4;  // the log is sent in small steps
  options.deadline_s = 4;
  RecoveryJob job(3, options, {{40, 1}, {48, 2, true}});
  job.run([&](Client&) {
    Tensor x = full({4}, 2.0, rows());
    std::vector<float> values;
    turns(x, 60, values);
  });
  EXPECT_NE(job.failure(), "");
  EXPECT_EQ(job.stats().epoch, 2u);
  EXPECT_EQ(job.stats().recoveries, 0);
}

TEST_F(RecoveryFault, CopiesThatWereMadeWhileTheLogWasSentCount) {
  const auto values_of = [](bool disturbed) {
    RuntimeOptions options = options_for();
    options.inflight_operators = 8;
    options.snapshot_every = 2;
    RecoveryJob job(4, options);
    if (disturbed) job.hold_second_epoch_for_copies(10);
    std::vector<float> values;
    job.run([&](Client&) {
      Tensor x = full({4}, 2.0, rows());
      step_until_snapshot(job, x);
      turns(x, 40, values);
      if (disturbed) job.kill(1);
      turns(x, 2, values);
      if (disturbed) job.kill(2);  // that has the only copy of what node 1 had, beside the new one
      turns(x, 2, values);
    });
    EXPECT_EQ(job.failure(), "");
    EXPECT_EQ(job.stats().recoveries, disturbed ? 2 : 0);
    return values;
  };
  EXPECT_EQ(values_of(true), values_of(false));
}

TEST_F(RecoveryFault, MemoryThatIsShortForCopiesCostsASnapshotAndNotTheJob) {
  const auto values_of = [](bool disturbed) {
    RuntimeOptions options = options_for();
    options.snapshot_every = 2;
    RecoveryJob job(3, options);
    if (disturbed) job.have_no_memory_for_copies(1);
    std::vector<float> values;
    job.run([&](Client&) {
      Tensor x = full({4}, 2.0, rows());
      step_until_snapshot(job, x);
      turns(x, 4, values);
      if (disturbed) job.kill(1);
      turns(x, 2, values);
    });
    EXPECT_EQ(job.failure(), "");
    EXPECT_EQ(job.num_copies_without_memory(), disturbed ? 1 : 0);
    EXPECT_EQ(job.stats().recoveries, disturbed ? 1 : 0);
    return values;
  };
  EXPECT_EQ(values_of(true), values_of(false));
}

TEST_F(RecoveryFault, MemoryThatIsShortForTheCopiesOfARecoveryLeavesTheOldOnes) {
  const auto values_of = [](bool disturbed) {
    RuntimeOptions options = options_for();
    options.snapshot_every = 2;
    options.spares = 1;  // has the copies of all others
    RecoveryJob job(4, options);
    std::vector<float> values;
    job.run([&](Client&) {
      Tensor x = full({4}, 2.0, rows());
      step_until_snapshot(job, x);
      if (disturbed) job.have_no_memory_for_copies(1, 2);
      if (disturbed) job.kill(1);
      turns(x, 6, values);
      if (disturbed) job.wait_for_copies_without_memory(1);
      if (disturbed) job.kill(0);
      turns(x, 2, values);
    });
    EXPECT_EQ(job.failure(), "");
    EXPECT_EQ(job.stats().recoveries, disturbed ? 2 : 0);
    return values;
  };
  EXPECT_EQ(values_of(true), values_of(false));
}

TEST_F(RecoveryFault, AProgramMayFillItsMemoryAgain) {
  const auto values_of = [&](bool disturbed) {
    std::vector<float> values;
    RecoveryJob job(3, options_for());
    job.run([&](Client&) {
      HostTensor batch(Shape{4}, kFloat32);
      float* const numbers = batch.mutable_data<float>();
      Tensor sum = full({4}, 0.0, rows());
      for (int step = 0; step < 10; ++step) {
        for (int i = 0; i < 4; ++i) numbers[i] = static_cast<float>(10 * step + i);
        sum = sum * 0.5 + from_host(batch, rows());
        values.push_back(sum.to_host().at<float>(1));  // from here on nobody needs the batch
        if (disturbed && step == 7) job.kill(1);
      }
    });
    EXPECT_EQ(job.failure(), "");
    return values;
  };
  EXPECT_EQ(values_of(true), values_of(false));
}

TEST_F(RecoveryFault, AnEffectThatWasAcknowledgedIsNotHadAgain) {
  RecoveryJob job(3, options_for());
  job.run([&](Client&) {
    const Tensor two = full({4}, 2.0, rows());
    count_up(two);
    EXPECT_EQ(two.to_host().at<float>(0), 2);  // all before it has been acknowledged
    job.kill(1);
    EXPECT_EQ((two + 1.0).to_host().at<float>(0), 3);
    job.kill(2);
    EXPECT_EQ((two + 2.0).to_host().at<float>(0), 4);
  });
  EXPECT_EQ(job.failure(), "");
  EXPECT_EQ(job.stats().epoch, 3u);
  EXPECT_EQ(num_effects.load(), 4);  // once a device
}

TEST_F(RecoveryFault, EffectsDoNotStandInTheWayOfSnapshots) {
  RuntimeOptions options = options_for();
  options.snapshot_every = 2;
  RecoveryJob job(3, options);
  job.run([&](Client&) {
    const Tensor two = full({4}, 2.0, rows());
    count_up(two);
    step_until_snapshot(job, two);
  });
  EXPECT_EQ(job.failure(), "");
}

TEST_F(RecoveryFault, SnapshotsDoNotHoldGradientsThatTheProgramDropsAfterAStep) {
  const auto snapshot_bytes = [](bool reads_after_step) {
    RuntimeOptions options = options_for();
    options.snapshot_every = 3;
    RecoveryJob job(2, options);
    job.run([&](Client& client) {
      nn::Parameter parameter(full({64, 64}, 1.0, {.mesh = init_device_mesh("cpu", {4}), .placements = {Shard(0)}}));
      optim::SGD optimizer({parameter}, {.lr = 0.5});
      for (int step = 0; step < 400 && job.num_snapshots() < 2; ++step) {
        const Tensor loss = sum(parameter.use() * parameter.use());
        if (!reads_after_step) static_cast<void>(loss.to_host());
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        if (reads_after_step) static_cast<void>(loss.to_host());
      }
      EXPECT_GE(job.num_snapshots(), 2);
      client.synchronize();
    });
    EXPECT_EQ(job.failure(), "");
    return job.stats().snapshot_bytes;
  };
  constexpr int64_t kParameterBytes = 64 * 64 * 4;
  EXPECT_LT(snapshot_bytes(true), kParameterBytes + kParameterBytes / 2);
  // Where the next place is within the next step, there would be more.
  EXPECT_LE(snapshot_bytes(false), 2 * kParameterBytes + kParameterBytes / 2);
}

TEST_F(RecoveryFault, ASaveThatWasGivenUpDoesNotStandInTheWayOfSnapshots) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("dtorch_given_up_" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  RuntimeOptions options = options_for();
  options.snapshot_every = 2;
  RecoveryJob job(3, options);
  job.run([&](Client&) {
    const Tensor two = full({4}, 2.0, rows());
    {
      checkpoint::PartsCall parts(directory, "cpu", job.binding(), Where::current());
      parts.write("two", two);
    }
    step_until_snapshot(job, two);
  });
  std::filesystem::remove_all(directory);
  EXPECT_EQ(job.failure(), "");
}

}  // namespace
}  // namespace dtorch
