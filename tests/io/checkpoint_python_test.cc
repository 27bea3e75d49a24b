// model.h5 read by another program: h5py shows every tensor whole, whatever parts it lies in.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

struct Four : nn::Module {
  Four() {
    const DeviceMesh four = cpu_mesh({4}), crossed = cpu_mesh({2, 2});
    matrix = register_parameter("matrix", randn({5, 3}, {.mesh = four, .placements = {Shard(0)}}));
    heads = register_parameter("layer.heads", randn({3, 4, 6}, {.mesh = crossed, .placements = {Shard(1), Shard(2)}}))
                .with_file_shape({12, 6});
    bias =
        register_parameter("bias", randn({7}, {.mesh = crossed, .placements = {Replicate(), Shard(0)}}).to(kBFloat16));
    scalar = register_parameter("scalar", randn({}, {.mesh = four}).to(kFloat64));
  }
  nn::Parameter matrix, heads, bias, scalar;
};

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "cannot run " + command;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, got);
  EXPECT_EQ(::pclose(pipe), 0) << command;
  return out;
}

class CheckpointPython : public KernelTest {};

TEST_F(CheckpointPython, H5pyShowsWholeTensors) {
  const char* source = std::getenv("DTORCH_SOURCE_DIR");
  const fs::path root = source ? source : ".", python = root / "data/python_for_tests/bin/python";
  if (!fs::exists(python)) GTEST_SKIP() << python << " isn't there; scripts/python_for_tests.sh makes it";
  const fs::path folder = fs::temp_directory_path() / ("dtorch_checkpoint_python_" + std::to_string(::getpid()));
  manual_seed(6);
  Four model;
  optim::SGD optimizer({model.matrix}, {.lr = 0.1, .momentum = 0.9});
  sum(model.matrix).backward();
  optimizer.step();
  const fs::path path = checkpoint::save(folder, {.model = model, .optimizer = optimizer, .step = 1});
  const std::string text = output_of("'" + python.string() + "' '" + (root / "tests/io/print_hdf5.py").string() +
                                     "' '" + (path / "model.h5").string() + "'");
  fs::remove_all(folder);
  std::map<std::string, nlohmann::json> shown;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    shown[json.at("name").get<std::string>()] = json;
  }
  EXPECT_EQ(shown.size(), 5u) << text;
  const auto expect = [&](const std::string& name, const Tensor& tensor, const Shape& shape, const char* dtype) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(shown.contains(name)) << text;
    const nlohmann::json& found = shown.at(name);
    EXPECT_EQ(found.at("shape").get<std::vector<int64_t>>(), std::vector<int64_t>(shape.begin(), shape.end()));
    EXPECT_EQ(found.at("dtype").get<std::string>(), dtype);
    EXPECT_EQ(found.at("values").get<std::vector<double>>(), tensor.to_host().to_vector<double>());
  };
  expect("model/matrix", model.matrix.value(), {5, 3}, "float32");
  expect("model/layer.heads", model.heads.value(), {12, 6}, "float32");
  expect("model/scalar", model.scalar.value(), {}, "float64");
  expect("optimizer/momentum/matrix", optimizer.state().front().at("momentum"), {5, 3}, "float32");
  // A type that numpy hasn't: its bits, and its name.
  const nlohmann::json& bias = shown.at("model/bias");
  EXPECT_EQ(bias.at("stands_for").get<std::string>(), "bfloat16");
  const HostTensor values = model.bias.value().to_host();
  for (size_t i = 0; i < 7; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, values.bytes() + 2 * i, 2);
    EXPECT_EQ(bias.at("values")[i].get<uint16_t>(), bits) << i;
  }
}

}  // namespace
}  // namespace dtorch::test
