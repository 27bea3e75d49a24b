// --device null: a job on one thread that stands for thousands of devices. What it says of memory and communication is
// what real devices do.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>

#include "dtorch/dtorch.h"
#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "runtime/controller/main_controller.h"
#include "runtime/simulation/simulated_nodes.h"

namespace dtorch {
namespace {

void in_job(const std::string& kind, int64_t devices, int64_t nodes, const std::function<void(Client&)>& program) {
  std::vector<std::string> words = {"program", "--device=" + kind, "--devices=" + std::to_string(devices),
                                    "--nodes=" + std::to_string(nodes)};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 0);
}

TEST(Simulation, FourThousandDevicesOnFiveHundredNodesTakeMetadataOnly) {
  in_job("null", 4096, 512, [](Client& client) {
    EXPECT_EQ(client.num_devices(), 4096);
    EXPECT_EQ(client.num_nodes(), 512);
    const DeviceMesh mesh = init_device_mesh("cpu", {64, 64}, {"dp", "tp"});
    // A terabyte.
    const Tensor x = full({1 << 20, 1 << 18}, 1.0, {.mesh = mesh, .placements = {Shard(0), Shard(1)}});
    client.start_profile();
    const Tensor y = x.redistribute({Shard(0), Replicate()});
    client.synchronize();
    const ClientStats stats = client.stats();
    constexpr int64_t kWhole = int64_t{4} << 38;
    ASSERT_EQ(stats.bytes_in_use_per_device.size(), 4096u);
    for (int64_t bytes : stats.bytes_in_use_per_device) ASSERT_EQ(bytes, kWhole / 4096 + kWhole / 64);
    const Profile profile = client.profile();
    ASSERT_EQ(profile.communication.size(), 1u);
    EXPECT_EQ(profile.communication[0].kind, "all-gather");
    EXPECT_EQ(profile.communication[0].axes, "tp");
    EXPECT_EQ(profile.communication[0].calls, 1);
    EXPECT_EQ(profile.communication[0].bytes, 4096 * (kWhole / 64 - kWhole / 4096));
    const Tensor small = full({3}, 7.0, {.mesh = mesh});
    EXPECT_EQ(small.to_host().to_vector<float>(), std::vector<float>(3, 0.0f)) << "nothing is computed";
  });
}

// Uneven parts, views, values that pass from mesh to mesh, releases.
void program_of_many_layouts(Client& client, std::vector<int64_t>& in_use, std::vector<int64_t>& peak) {
  const DeviceMesh all = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const DeviceMesh first("cpu", {2}, {0, 1}), second("cpu", {2}, {2, 3});
  std::vector<Tensor> kept;
  for (int64_t rows : {int64_t{1000}, int64_t{1001}, int64_t{3}}) {
    Tensor x = full({rows, 64}, 1.0, {.mesh = all, .placements = {Shard(0), Shard(1)}});
    Tensor whole = x.redistribute({Replicate(), Replicate()});
    kept.push_back(x.redistribute({Shard(1), Shard(0)}));
    x = full({rows, 32}, 1.0, {.mesh = first, .placements = {Shard(0)}});
    kept.push_back(x.redistribute(second, {Shard(0)}));
    kept.push_back(whole.redistribute({Partial(), Replicate()}).redistribute({Shard(0), Replicate()}));
  }
  kept.erase(kept.begin());
  client.synchronize();
  const ClientStats stats = client.stats();
  in_use = stats.bytes_in_use_per_device;
  peak = stats.peak_bytes_per_device;
}

TEST(Simulation, CountsTheMemoryThatRealDevicesUse) {
  std::vector<int64_t> simulated, simulated_peak, real, real_peak;
  in_job("null", 4, 4, [&](Client& client) { program_of_many_layouts(client, simulated, simulated_peak); });
  in_job("cpu", 4, 4, [&](Client& client) { program_of_many_layouts(client, real, real_peak); });
  EXPECT_EQ(simulated, real);
  ASSERT_EQ(simulated_peak.size(), real_peak.size());
  for (size_t device = 0; device < real_peak.size(); ++device) {
    EXPECT_GE(simulated_peak[device], real[device]);
    EXPECT_NEAR(static_cast<double>(simulated_peak[device]), static_cast<double>(real_peak[device]),
                0.5 * static_cast<double>(real_peak[device]))
        << "real devices run ahead of each other";
  }
}

// A loop that is replayed: temporaries, a value that lives from turn to turn, scalars and reads that differ.
void program_of_a_loop(Client& client, std::vector<int64_t>& in_use, TemplateStats& stats) {
  const DeviceMesh mesh = init_device_mesh("cpu", {4});
  Tensor x = full({64, 64}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
  std::vector<Tensor> kept;
  for (int turn = 0; turn < 40; ++turn) {
    for (int i = 0; i < 30; ++i) {
      const Tensor whole = (x + x).redistribute({Replicate()});
      x = (whole + whole).redistribute({Shard(0)});
    }
    EXPECT_EQ(x.to_host().shape(), (Shape{64, 64}));
    if (turn % 10 == 0) kept.push_back(x);
  }
  client.synchronize();
  const ClientStats all = client.stats();
  in_use = all.bytes_in_use_per_device;
  stats = all;
}

TEST(Simulation, PlaysTemplatesAsRealDevicesDo) {
  std::vector<int64_t> simulated, real;
  TemplateStats simulated_stats, real_stats;
  in_job("null", 4, 4, [&](Client& client) { program_of_a_loop(client, simulated, simulated_stats); });
  in_job("cpu", 4, 4, [&](Client& client) { program_of_a_loop(client, real, real_stats); });
  EXPECT_EQ(simulated, real);
  EXPECT_GT(simulated_stats.template_operators, 1000);
  EXPECT_GT(real_stats.template_operators, 1000);
}

TEST(Simulation, CountsTheCallsOfReplays) {
  in_job("null", 4, 1, [&](Client& client) {
    const DeviceMesh mesh = init_device_mesh("cpu", {4});
    Tensor x = full({64}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
    client.start_profile();
    for (int i = 0; i < 1000; ++i) x = x + x;
    const Profile profile = client.profile();
    ASSERT_EQ(profile.operators.size(), 1u);
    EXPECT_EQ(profile.operators[0].calls, 1000);
    EXPECT_GT(client.stats().template_operators, 500);
  });
}

TEST(Simulation, AnswersWhateverAProgramAsks) {
  in_job("null", 8, 4, [](Client& client) {
    const DeviceMesh mesh = init_device_mesh("cpu", {8});
    client.start_profile();
    const Tensor x = full({16, 4}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
    const std::string report = client.memory_report({{"weight", x}});
    EXPECT_NE(report.find("node 3 device 7 holds 32 bytes (peak 32 bytes) in 1 tensors"), std::string::npos) << report;
    EXPECT_NE(report.find("weight, "), std::string::npos) << report;
    EXPECT_NE(report.find("made by [full] called at "), std::string::npos) << report;
    static_cast<void>(x.redistribute({Replicate()}).to_host());
    client.synchronize();
    EXPECT_EQ(client.stats().peak_bytes_per_device, std::vector<int64_t>(8, 32 + 256));
    client.reset_peak_bytes();
    EXPECT_EQ(client.stats().peak_bytes_per_device, std::vector<int64_t>(8, 32));
    EXPECT_FALSE(client.profile().operators.empty());
    EXPECT_NE(client.describe_nodes().find("simulated"), std::string::npos);
    EXPECT_EQ(x.to_host_local(7).to_vector<float>(), std::vector<float>(8, 0.0f));
    std::promise<Shape> done;
    x.to_host_async().then([&](const HostTensor& value) { done.set_value(value.shape()); });
    EXPECT_EQ(done.get_future().get(), (Shape{16, 4}));
    // Three turns: recorded, defined, replayed.
    Tensor y = x;
    CapturedFunction doubled = client.capture([&] { y = y + y; });
    for (int turn = 0; turn < 3; ++turn) doubled();
    EXPECT_EQ(y.to_host().shape(), (Shape{16, 4}));
    client.set_check_replicas(true);
    static_cast<void>(y + y);
    client.set_check_replicas(false);
    const Graph other = client.new_graph();
    const GraphScope scope(other);
    EXPECT_EQ(full({3}, 1.0, {.mesh = mesh}).to_host().shape(), (Shape{3}));
  });
}

TEST(Simulation, SaysThatItsNodesAreIdle) {
  SimulatedNodes nodes(3);
  RuntimeOptions options;
  options.device = "null";
  options.devices = 6;
  MainController controller(nodes.control(), nodes.num_nodes(), options);
  nodes.start();
  controller.start();
  EXPECT_TRUE(controller.is_simulated());
  const std::string status = controller.describe_status();
  EXPECT_NE(status.find("nodes 0, 1, 2 are idle"), std::string::npos) << status;
  EXPECT_TRUE(controller.shutdown(0, "done", 10));
}

// There is nothing to write, and nobody who would answer when it was written.
TEST(Simulation, SavesNothingAndSaysSo) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "simulated_checkpoint";
  std::filesystem::remove_all(directory);
  in_job("null", 2, 2, [&](Client&) {
    nn::Linear model(4, 4, {.mesh = init_device_mesh("cpu", {2})});
    const checkpoint::Contents contents{.model = model};
    const auto expect_refused = [](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "it wasn't refused";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("with --device null there are no values"), std::string::npos);
      }
    };
    expect_refused([&] { checkpoint::save(directory, contents); });
    expect_refused([&] { checkpoint::save_async(directory, contents); });
    expect_refused([&] { checkpoint::check_directory(directory); });
    EXPECT_FALSE(checkpoint::is_writing());
    EXPECT_EQ(full({3}, 7.0, {.mesh = init_device_mesh("cpu", {2})}).to_host().shape(), (Shape{3}));
  });
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST(Simulation, RefusesWhatItCannotPlay) {
  // A wrong program is refused as always.
  in_job("null", 2, 1,
         [](Client&) { EXPECT_THROW(full({4}, 1.0, {.mesh = init_device_mesh("cpu", {3})}), MeshError); });
}

}  // namespace
}  // namespace dtorch
