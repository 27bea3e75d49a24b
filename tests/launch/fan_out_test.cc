// Whole jobs of many nodes, where messages go down a tree: values, failures, statistics, and what rank 0 sends.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtorch/dtorch.h"

namespace dtorch {
namespace {

constexpr int64_t kNodes = 21;

void in_job(const std::string& fan_out, const std::function<void(Client&)>& program) {
  std::vector<std::string> words = {"program",   "--nodes", std::to_string(kNodes), "--devices", std::to_string(kNodes),
                                    "--fan-out", fan_out};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 0);
}

class FanOutJob : public testing::TestWithParam<const char*> {};

TEST_P(FanOutJob, ComputesMovesAndReads) {
  in_job(GetParam(), [](Client& client) {
    const DeviceMesh mesh = init_device_mesh("cpu", {kNodes});
    std::vector<float> numbers(2 * kNodes);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    Tensor x = from_host(HostTensor::of<float>({2 * kNodes}, numbers), {.mesh = mesh, .placements = {Shard(0)}});
    const Tensor one = full({2 * kNodes}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
    for (int i = 0; i < 20; ++i) x = (x + one).redistribute({Replicate()}).redistribute({Shard(0)});
    for (float& number : numbers) number += 20;
    EXPECT_EQ(x.to_host().to_vector<float>(), numbers);
    // Host data for two nodes far from each other.
    const DeviceMesh two("cpu", {2}, {3, kNodes - 1});
    const Tensor far = from_host(HostTensor::of<float>({2}, {7, 8}), {.mesh = two, .placements = {Shard(0)}});
    EXPECT_EQ((far + far).to_host().to_vector<float>(), (std::vector<float>{14, 16}));
    EXPECT_EQ(client.num_nodes(), kNodes);
  });
}

TEST_P(FanOutJob, AFailureOfTheLastNodeIsNamed) {
  in_job(GetParam(), [](Client&) {
    const DeviceMesh last("cpu", {1}, {kNodes - 1});
    const Tensor huge = full({int64_t{1} << 56}, 1.0, {.mesh = last, .placements = {Replicate()}});
    try {
      (void)(huge + huge).to_host_local(kNodes - 1);
      ADD_FAILURE() << "no failure";
    } catch (const RuntimeFault& fault) {
      const std::string text = fault.what();
      EXPECT_NE(text.find("[full] failed on node 20 device 20"), std::string::npos) << text;
      EXPECT_NE(text.find("fan_out_test.cc:"), std::string::npos) << text;
    }
  });
}

TEST_P(FanOutJob, CountsTheMemoryOfEveryDevice) {
  in_job(GetParam(), [](Client& client) {
    const DeviceMesh mesh = init_device_mesh("cpu", {kNodes});
    const Tensor x = full({kNodes * 100}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
    client.synchronize();
    EXPECT_EQ(client.stats().bytes_in_use_per_device, std::vector<int64_t>(kNodes, 400));
  });
}

TEST_P(FanOutJob, RankZeroSendsNoMoreThanTheFanOut) {
  in_job(GetParam(), [](Client& client) {
    const int64_t fan_out = std::stoll(GetParam());
    Tensor y = full({1}, 0.0);
    const Tensor one = full({1}, 1.0);
    const auto before = client.stats();
    for (int i = 0; i < 100; ++i) {
      y = y + one;
      (void)y.item<float>();
    }
    const auto after = client.stats();
    const int64_t pieces = after.pieces - before.pieces;
    const int64_t defined = after.templates_defined - before.templates_defined;
    EXPECT_LE(after.control_messages - before.control_messages, (pieces + defined) * std::min(fan_out, kNodes));
  });
}

INSTANTIATE_TEST_SUITE_P(Widths, FanOutJob, testing::Values("1", "2", "8", "64"),
                         [](const auto& info) { return "Width" + std::string(info.param); });

}  // namespace
}  // namespace dtorch
