// Templates as device graphs, on fake accelerators: the same bits as without, whatever changes from step to step; what
// can't be one graph is walked, and counted.
#include <cstdlib>

#include "dtorch/nn.h"
#include "runtime/accelerator/fake/fake_faults.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

using nn::Parameter;

void set(const char* name, const std::string& value) {
  if (setenv(name, value.c_str(), 1) != 0) throw InternalError(std::string(name) + " can't be set");
}

struct Outcome {
  std::vector<HostTensor> values;
  std::string error;
  DeviceGraphStats graphs;
};

using Program = std::function<std::vector<HostTensor>(Client&)>;

Outcome run_on(const std::string& device, int nodes, int64_t devices, const Program& program, bool graphs = true) {
  set("DTORCH_DEVICE", device);
  set("DTORCH_DEVICE_GRAPHS", graphs ? "on" : "off");
  Outcome outcome;
  run_in_job(nodes, devices, [&](Client& client) {
    try {
      outcome.values = program(client);
      client.synchronize();
      outcome.graphs = client.stats().device_graphs;
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
    return 0;
  });
  return outcome;
}

std::string difference(const Outcome& got, const Outcome& want, double tolerance = 0) {
  if (!got.error.empty()) return got.error;
  if (got.values.size() != want.values.size()) return std::to_string(got.values.size()) + " values";
  for (size_t i = 0; i < got.values.size(); ++i) {
    const std::string what = checker::difference(got.values[i], want.values[i], tolerance);
    if (!what.empty()) return "value " + std::to_string(i) + ": " + what;
  }
  return "";
}

constexpr int kSteps = 16;

// Two layers and AdamW, whose learning rate and step number change every time; host data comes every step. Nothing is
// read before the end, so that nodes have work and get instances whole.
std::vector<HostTensor> train(const DeviceMesh& mesh, const Placements& batch, const Placements& first,
                              const Placements& second) {
  Parameter w1(distribute(normal({6, 10}, kFloat32, 1), mesh, first));
  Parameter w2(distribute(normal({10, 5}, kFloat32, 2), mesh, second));
  optim::AdamW optimizer({w1, w2});
  std::vector<Tensor> losses;
  for (uint64_t step = 0; step < kSteps; ++step) {
    optimizer.set_lr(0.01 / static_cast<double>(step + 1));
    const Tensor x = distribute(normal({8, 6}, kFloat32, 10 + step), mesh, batch);
    const Tensor hidden = relu(matmul(x, w1.value())) * 0.5 + 0.25;
    const Tensor y = matmul(hidden, w2.value()).redistribute(batch);
    const Tensor loss = mean(square(sigmoid(y) - 0.125));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.detach());
  }
  std::vector<HostTensor> seen;
  for (const Tensor& loss : losses) seen.push_back(loss.to_host());
  seen.push_back(w1.value().to_host());
  seen.push_back(w2.value().to_host());
  return seen;
}

std::vector<HostTensor> train_on_one(Client&) {
  return train(cpu_mesh({1}), {Replicate()}, {Replicate()}, {Replicate()});
}
std::vector<HostTensor> train_in_parallel(Client&) {
  return train(cpu_mesh({2, 2}, {"dp", "tp"}), {Shard(0), Replicate()}, {Replicate(), Shard(1)},
               {Replicate(), Shard(0)});
}

std::vector<HostTensor> iterate(Client& client) {
  const TensorOptions options{.mesh = cpu_mesh({1}), .placements = {Replicate()}};
  Tensor y = distribute(normal({4, 4}, kFloat32, 3), options.mesh, {Replicate()});
  const Tensor b = full({4, 4}, 0.25, options);
  for (int i = 0; i < 30; ++i) {
    const Tensor t = exp(matmul(y, b)) - b;
    y = sigmoid(matmul(t, y)) * b;
    client.flush();
  }
  return {y.to_host()};
}

class DeviceGraphJob : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
  }
  void TearDown() override {
    fake::plant({});
    set("DTORCH_DEVICE", "cpu");
    set("DTORCH_DEVICE_GRAPHS", "on");
    set("DTORCH_COMPUTE_STREAMS", "1");
  }
  static std::string counts(const DeviceGraphStats& graphs) {
    std::string text = std::to_string(graphs.captured) + " captured, " + std::to_string(graphs.launched) +
                       " launched, " + std::to_string(graphs.kernels) + " kernels";
    for (size_t i = 0; i < kNumGraphFallbacks; ++i)
      text += ", " + std::to_string(graphs.fallbacks[i]) + " " + kGraphFallbackNames[i];
    return text;
  }
};

TEST_F(DeviceGraphJob, TrainingOnOneDeviceGivesTheBitsOfTheCpu) {
  const Outcome cpu = run_on("cpu", 1, 1, train_on_one);
  ASSERT_EQ(cpu.error, "");
  for (int seed = 1; seed <= 4; ++seed) {
    const std::string device = "fake:0:" + std::to_string(seed);
    const Outcome off = run_on(device, 1, 1, train_on_one, false), on = run_on(device, 1, 1, train_on_one);
    EXPECT_EQ(difference(off, cpu), "");
    EXPECT_EQ(difference(on, cpu), "");
    EXPECT_EQ(off.graphs, DeviceGraphStats{});
    EXPECT_GT(on.graphs.launched, 0) << counts(on.graphs);
    EXPECT_GT(on.graphs.kernels, on.graphs.launched);
  }
}

TEST_F(DeviceGraphJob, TrainingWithCollectivesGivesTheSameBits) {
  for (int seed = 1; seed <= 4; ++seed) {
    const std::string device = "fake:0:" + std::to_string(seed);
    const Outcome off = run_on(device, 2, 4, train_in_parallel, false), on = run_on(device, 2, 4, train_in_parallel);
    ASSERT_EQ(off.error, "");
    EXPECT_EQ(difference(on, off), "");
    EXPECT_GT(on.graphs.launched, 0) << counts(on.graphs);
  }
}

TEST_F(DeviceGraphJob, DataThatMovesInOtherWaysGivesTheSameBits) {
  const Outcome cpu = run_on("cpu", 2, 4, train_in_parallel);
  for (int nodes : {1, 2}) {
    const Outcome on = run_on("fake:1:" + std::to_string(nodes), nodes, 4, train_in_parallel);
    EXPECT_EQ(difference(on, cpu, 1e-5), "");
    EXPECT_GT(on.graphs.launched, 0) << counts(on.graphs);
  }
}

TEST_F(DeviceGraphJob, ALoopIsAGraphFromItsThirdTurnOn) {
  const Outcome cpu = run_on("cpu", 1, 1, iterate), on = run_on("fake:0:5", 1, 1, iterate);
  EXPECT_EQ(difference(on, cpu), "");
  EXPECT_GT(on.graphs.launched, 0) << counts(on.graphs);
}

TEST_F(DeviceGraphJob, SeveralComputeStreamsWalkAndSaySo) {
  set("DTORCH_COMPUTE_STREAMS", "2");
  const Outcome on = run_on("fake:0:1", 1, 1, iterate);
  EXPECT_EQ(on.error, "");
  EXPECT_EQ(on.graphs.launched, 0);
  EXPECT_GT(on.graphs.fallbacks_for(GraphFallback::kComputeStreams), 0);
}

// A value that somebody else still has must not be written over by the next launch.
std::vector<HostTensor> keep_everything(Client& client) {
  const TensorOptions options{.mesh = cpu_mesh({1}), .placements = {Replicate()}};
  Tensor y = distribute(normal({4, 4}, kFloat32, 3), options.mesh, {Replicate()});
  const Tensor b = full({4, 4}, 0.25, options);
  std::vector<Tensor> all;
  for (int i = 0; i < 16; ++i) {
    const Tensor t = matmul(exp(y), b);
    y = sigmoid(matmul(t, y)) - b;
    all.push_back(t);
    all.push_back(y);
    client.flush();
  }
  std::vector<HostTensor> seen;
  for (const Tensor& tensor : all) seen.push_back(tensor.to_host());
  return seen;
}

TEST_F(DeviceGraphJob, ValuesThatOutliveTheirStepStayWhatTheyWere) {
  const Outcome cpu = run_on("cpu", 1, 1, keep_everything), on = run_on("fake:0:6", 1, 1, keep_everything);
  EXPECT_EQ(difference(on, cpu), "");
  EXPECT_GT(on.graphs.launched, 0) << counts(on.graphs);
}

// An id outside of the table in one step: that step fails, the graph runs before and after.
TEST_F(DeviceGraphJob, AfterAFailureTheGraphRunsAgain) {
  int failures = 0;
  const auto program = [&](Client& client) {
    failures = 0;
    const DeviceMesh mesh = cpu_mesh({1});
    const Tensor table = distribute(normal({6, 2}, kFloat32, 4), mesh, {Replicate()});
    std::vector<Tensor> all;
    for (int64_t step = 0; step < kSteps; ++step) {
      const Tensor ids = distribute(HostTensor::of<int64_t>({2}, {step % 6, step == 9 ? 6 : 1}), mesh, {Replicate()});
      all.push_back(exp(embedding(ids, table)) * 0.5);
      client.flush();
    }
    std::vector<HostTensor> seen;
    for (const Tensor& rows : all) {
      try {
        seen.push_back(rows.to_host());
      } catch (const RuntimeFault& fault) {
        ++failures;
        EXPECT_NE(std::string(fault.what()).find("embedding"), std::string::npos) << fault.what();
      }
    }
    return seen;
  };
  const Outcome cpu = run_on("cpu", 1, 1, program);
  EXPECT_EQ(failures, 1);
  const Outcome on = run_on("fake:0:7", 1, 1, program);
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(difference(on, cpu), "");
  EXPECT_GT(on.graphs.launched, 4) << counts(on.graphs);
}

TEST_F(DeviceGraphJob, AnInputThatIsNotBroughtToItsPlaceIsFound) {
  const Outcome cpu = run_on("cpu", 1, 1, train_on_one);
  fake::Faults faults;
  faults.missing_graph_input = true;
  bool is_found = false;
  for (int seed = 1; seed <= 20 && !is_found; ++seed) {
    fake::plant(faults);
    is_found = !difference(run_on("fake:0:" + std::to_string(seed), 1, 1, train_on_one), cpu).empty();
    fake::plant({});
  }
  EXPECT_TRUE(is_found);
}

}  // namespace
}  // namespace dtorch::test
