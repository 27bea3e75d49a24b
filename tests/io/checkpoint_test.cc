// Checkpoints: saved on one layout they load on another bitwise; what isn't complete is passed over; strict lists.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "io/hdf5_file.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

struct TwoParts : nn::Module {
  explicit TwoParts(const Layout& matrix, const Layout& vector, bool extra = false) {
    const auto options = [](const Layout& layout) {
      return TensorOptions{.mesh = layout.mesh(), .placements = layout.placements()};
    };
    w = register_parameter("w", randn({5, 3}, options(matrix)));
    b = register_parameter("b", randn({7}, options(vector)));
    if (extra) more = register_parameter("more", randn({2}, options(vector)));
  }
  nn::Parameter w, b, more;
};

class Checkpoints : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    folder_ = fs::temp_directory_path() / ("dtorch_checkpoints_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    KernelTest::TearDown();
  }
  // One step of an optimizer, so that it has state.
  static void step(TwoParts& model, optim::AdamW& optimizer) {
    (sum(mul(model.w, model.w)) + sum(mul(model.b, model.b))).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  fs::path folder_;
};

TEST_F(Checkpoints, LoadBitwiseOnAnotherLayoutWithOptimizerStepAndRandomState) {
  const DeviceMesh four = cpu_mesh({4}), two = cpu_mesh({2, 2});
  manual_seed(5);
  TwoParts saved(Layout(four, {Shard(0)}, 2), Layout(four, {Shard(0)}, 1));
  optim::AdamW optimizer(saved.parameters());
  step(saved, optimizer);
  const fs::path path =
      checkpoint::save(folder_, {.model = saved, .optimizer = optimizer, .step = 17, .config = "{\"a\":1}"});
  EXPECT_EQ(path.filename(), "step-000017");
  const HostTensor next_random = randn({3}).to_host();

  TwoParts loaded(Layout(two, {Replicate(), Shard(1)}, 2), Layout(two, {Shard(0), Shard(0)}, 1));
  optim::AdamW other(loaded.parameters());
  checkpoint::Contents contents{.model = loaded, .optimizer = &other};
  EXPECT_EQ(checkpoint::load(folder_, contents).step, 17);
  EXPECT_EQ(contents.config, "{\"a\":1}");
  EXPECT_EQ(other.steps(), 1);
  EXPECT_EQ(check_tensor(loaded.w.value(), saved.w.value().to_host(), 0), "");
  EXPECT_EQ(check_tensor(loaded.b.value(), saved.b.value().to_host(), 0), "");
  ASSERT_EQ(other.state().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    for (const char* name : {"m", "v"}) {
      EXPECT_EQ(check_tensor(other.state()[i].at(name), optimizer.state()[i].at(name).to_host(), 0), "");
    }
  }
  EXPECT_TRUE(randn({3}).to_host().equals(next_random)) << "the sequence of random numbers goes on";
}

TEST_F(Checkpoints, AFileThatChangedIsPassedOverAndTheOneBeforeIsFound) {
  const Layout whole = Layout::replicated(cpu_mesh({1}));
  TwoParts model(whole, whole);
  for (int64_t at : {1, 2, 3}) checkpoint::save(folder_, {.model = model, .step = at}, {.keep_last = 2});
  EXPECT_FALSE(fs::exists(folder_ / "step-000001")) << "only the last two are kept";
  ASSERT_TRUE(checkpoint::latest(folder_).has_value());
  EXPECT_EQ(checkpoint::latest(folder_)->step, 3);
  std::fstream file(folder_ / "step-000003" / "part-0.h5", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(1000);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(1000);
  file.put(byte);
  file.close();
  EXPECT_EQ(checkpoint::latest(folder_)->step, 2);
  fs::remove(folder_ / "step-000002" / "manifest.json");
  EXPECT_FALSE(checkpoint::latest(folder_).has_value());
}

TEST_F(Checkpoints, WhatDoesNotFitIsListedAndNothingIsLoaded) {
  const Layout whole = Layout::replicated(cpu_mesh({1}));
  TwoParts saved(whole, whole, true), model(whole, whole);
  const HostTensor before = model.w.value().to_host();
  checkpoint::save(folder_, {.model = saved, .step = 1});
  checkpoint::Contents contents{.model = model};
  try {
    checkpoint::load(folder_, contents);
    FAIL() << "there is one tensor too many";
  } catch (const KeyError& error) {
    EXPECT_NE(std::string(error.what()).find("unexpected: more"), std::string::npos) << error.what();
  }
  checkpoint::save(folder_, {.model = model, .step = 2});
  checkpoint::Contents larger{.model = saved};
  try {
    checkpoint::load(folder_, larger);
    FAIL() << "there is one tensor too few";
  } catch (const KeyError& error) {
    EXPECT_NE(std::string(error.what()).find("missing: more"), std::string::npos) << error.what();
  }
  EXPECT_TRUE(model.w.value().to_host().equals(before));
}

TEST_F(Checkpoints, APartThatIsGoneIsAnErrorNotZeros) {
  fs::create_directories(folder_);
  const HostTensor whole = HostTensor::of<float>({4}, {1, 2, 3, 4});
  {
    io::Hdf5File part(folder_ / "part.h5", io::Hdf5File::Mode::kCreate);
    part.write("x", whole);
    part.close();
    io::Hdf5File model(folder_ / "model.h5", io::Hdf5File::Mode::kCreate);
    model.write_virtual("x", {4}, kFloat32, {{{{0}, {1}, {4}, {1}}, "part.h5", "x", {4}}});
    model.close();
  }
  const io::Hdf5File model(folder_ / "model.h5", io::Hdf5File::Mode::kRead);
  std::vector<float> values(4);
  model.read_box("x", {{0}, {4}}, values.data());
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4}));
  fs::remove(folder_ / "part.h5");
  const io::Hdf5File again(folder_ / "model.h5", io::Hdf5File::Mode::kRead);
  EXPECT_THROW(again.read_box("x", {{0}, {4}}, values.data()), RuntimeFault);
}

TEST_F(Checkpoints, TokenDataGivesTheSameBatchesOnAnyLayout) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "a.txt") << "the quick brown fox jumps over the lazy dog";
  std::ofstream(folder_ / "b.txt") << " and runs away";
  EXPECT_EQ(prepare_bytes({folder_ / "a.txt", folder_ / "b.txt"}, folder_ / "t.h5"), 57);
  const TokenData data = TokenData::open(folder_ / "t.h5");
  EXPECT_EQ(data.vocab(), 256);
  const Batch one = data.random_batch(5, 8, 3, 4, {});
  EXPECT_EQ(one.inputs.slice(1, 1, 8).to_host().to_vector<int64_t>(),
            one.targets.slice(1, 0, 7).to_host().to_vector<int64_t>());
  const DeviceMesh mesh = cpu_mesh({2, 2});
  for (const Placements& placements : {Placements{Shard(0), Replicate()}, Placements{Shard(0), Shard(1)}}) {
    const Batch other = data.random_batch(5, 8, 3, 4, {.mesh = mesh, .placements = placements});
    EXPECT_EQ(check_tensor(other.inputs, one.inputs.to_host()), "");
    EXPECT_EQ(check_tensor(other.targets, one.targets.to_host()), "");
  }
  // In parts as in one piece, and as a loop's batches.
  const Batch part = data.random_rows(3, 2, 8, 3, 4, {.mesh = mesh, .placements = {Shard(0), Replicate()}});
  EXPECT_EQ(check_tensor(part.inputs, one.inputs.slice(0, 3, 5).to_host()), "");
  EXPECT_EQ(check_tensor(part.targets, one.targets.slice(0, 3, 5).to_host()), "");
  EXPECT_EQ(check_tensor(data.batches(5, 8, {}, 3).next(4).inputs, one.inputs.to_host()), "");
  EXPECT_THROW(data.random_rows(-1, 2, 8, 3, 4, {}), UserError);
  // 56 targets are 7 windows of 8; the eighth window of two batches of four has none.
  EXPECT_EQ(data.num_sequential_batches(4, 8), 2);
  EXPECT_EQ(count_valid(data.sequential_batch(4, 8, 0, {}).targets).item<int64_t>(), 32);
  EXPECT_EQ(count_valid(data.sequential_batch(4, 8, 1, {}).targets).item<int64_t>(), 24);
  EXPECT_THROW(data.random_batch(1, 57, 0, 0, {}), UserError);
  EXPECT_THROW(prepare_bytes({folder_ / "none.txt"}, folder_ / "u.h5"), RuntimeFault);
  EXPECT_FALSE(fs::exists(folder_ / "u.h5"));
}

}  // namespace
}  // namespace dtorch::test
