// What --device null knows of kernels: that devices which compute use the same memory.
#include <gtest/gtest.h>

#include "dtorch/dtorch.h"
#include "ops/nn/ring_step.h"

namespace dtorch {
namespace {

// Bytes in use by device when `program` has run on four nodes of one device; what it returns is kept until then.
std::vector<int64_t> bytes_in_use(const std::string& kind, const std::function<std::vector<Tensor>()>& program) {
  std::vector<std::string> words = {"program", "--device=" + kind, "--devices=4", "--nodes=4"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::vector<int64_t> bytes;
  const auto measured = [&](Client& client) {
    const std::vector<Tensor> kept = program();
    client.synchronize();
    bytes = client.stats().bytes_in_use_per_device;
  };
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), measured), 0);
  return bytes;
}

TEST(SimulatedKernels, TheTwoPiecesOfABlockOfARingAreViews) {
  const auto split = [] {
    const DeviceMesh ring = init_device_mesh("cpu", {4}, {"ring_cp"});
    const Tensor x = full({1, 2, 10, 8}, 1.0, {.mesh = ring, .placements = {Shard(2)}});
    const Layout layouts[] = {x.layout(), x.layout()};
    auto [first, second] =
        record_many<2>(ring_split_op, nn_ops::RingSplitAttrs{4}, {&x}, Where::current(), {.output_layouts = layouts});
    return std::vector<Tensor>{first, second};
  };
  const std::vector<int64_t> simulated = bytes_in_use("null", split);
  // Ten rows over four devices: 3, 3, 2, 2.
  EXPECT_EQ(simulated, (std::vector<int64_t>{3 * 64, 3 * 64, 2 * 64, 2 * 64}));
  EXPECT_EQ(simulated, bytes_in_use("cpu", split));
}

}  // namespace
}  // namespace dtorch
