// A checkpoint that was saved on one layout loads on every other one, bitwise; what a part holds; asynchronous saves.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "io/checkpoint_files.h"
#include "io/checkpoint_parts.h"
#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/slabs.h"
#include "io/slices.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

struct LayoutChoice {
  const char* name;
  // Of the matrix [5, 3], the heads [3, 4, 6] (files show [12, 6]), the experts [5, 2, 3], the bfloat16 bias [7].
  Layout matrix, heads, experts, bias;
  DeviceMesh scalar;
};

std::vector<LayoutChoice> choices() {
  const DeviceMesh one = cpu_mesh({1}), four = cpu_mesh({4}), three = cpu_mesh({3}), two = cpu_mesh({2});
  const DeviceMesh last_two("cpu", {2}, {2, 3}), crossed("cpu", {2}, {3, 1});
  const auto on = [](const DeviceMesh& mesh, Placement placement, int64_t ndim) {
    return Layout(mesh, {placement}, ndim);
  };
  const Layout whole = Layout::replicated(one);
  return {
      {"one", whole, whole, whole, whole, one},
      {"dp 4, zero 3", on(four, Shard(0), 2), on(four, Shard(0), 3), on(four, Shard(0), 3), on(four, Shard(0), 1),
       four},
      {"tp 3", on(three, Shard(1), 2), on(three, Shard(1), 3), on(three, Replicate(), 3), on(three, Shard(0), 1),
       three},
      {"pp 2 x tp 2", on(two, Shard(0), 2), on(last_two, Shard(0), 3), on(two, Shard(1), 3),
       on(last_two, Replicate(), 1), last_two},
      {"ep 2", on(two, Replicate(), 2), on(two, Replicate(), 3), on(two, Shard(0), 3), on(two, Replicate(), 1), two},
      {"uneven tp 2", on(crossed, Shard(0), 2), on(crossed, Shard(2), 3), on(crossed, Shard(2), 3),
       on(crossed, Shard(0), 1), crossed},
  };
}

struct Parts : nn::Module {
  explicit Parts(const LayoutChoice& choice) {
    const auto make = [](const Shape& shape, const Layout& layout, DType dtype) {
      return randn(shape, {.mesh = layout.mesh(), .placements = layout.placements()}).to(dtype);
    };
    parameters = {register_parameter("matrix", make({5, 3}, choice.matrix, kFloat32)),
                  register_parameter("heads", make({3, 4, 6}, choice.heads, kFloat64)).with_file_shape({12, 6}),
                  register_parameter("experts", make({5, 2, 3}, choice.experts, kFloat32)),
                  register_parameter("bias", make({7}, choice.bias, kBFloat16)),
                  register_parameter("scalar", make({}, Layout::replicated(choice.scalar), kFloat32)),
                  register_parameter("nothing", make({0, 3}, choice.matrix, kFloat32))};
  }
  std::vector<nn::Parameter> parameters;
};

class CheckpointLayouts : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    folder_ = fs::temp_directory_path() / ("dtorch_checkpoint_layouts_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    KernelTest::TearDown();
  }
  fs::path folder_;
};

TEST_F(CheckpointLayouts, SavedOnOneTheyLoadOnEveryOtherBitwise) {
  for (const LayoutChoice& from : choices()) {
    manual_seed(3);
    Parts saved(from);
    checkpoint::save(folder_, {.model = saved, .step = 1});
    for (const LayoutChoice& to : choices()) {
      SCOPED_TRACE(std::string("from ") + from.name + " to " + to.name);
      manual_seed(4);
      Parts loaded(to);
      checkpoint::Contents contents{.model = loaded};
      checkpoint::load(folder_, contents);
      for (size_t i = 0; i < saved.parameters.size(); ++i) {
        EXPECT_EQ(check_tensor(loaded.parameters[i].value(), saved.parameters[i].value().to_host(), 0), "") << i;
      }
    }
  }
}

TEST_F(CheckpointLayouts, EveryNodeWritesWhatItsDevicesHoldAndEachElementIsWrittenOnce) {
  const LayoutChoice choice = choices()[1];
  Parts saved(choice);
  const fs::path path = checkpoint::save(folder_, {.model = saved, .step = 1});
  int64_t elements = 0;
  for (int64_t node : {0, 1}) {
    const io::Hdf5File part(path / checkpoint::part_name(node), io::Hdf5File::Mode::kRead);
    const auto names = part.dataset_names();
    EXPECT_NE(std::find(names.begin(), names.end(), "model/matrix@" + std::to_string(2 * node)), names.end());
    for (const std::string& name : names) elements += part.info(name).shape.num_elements();
  }
  EXPECT_EQ(elements, 5 * 3 + 3 * 4 * 6 + 5 * 2 * 3 + 7 + 1);
  // One that isn't part of any mesh has nothing to write.
  Parts alone(choices()[0]);
  const fs::path other = checkpoint::save(folder_, {.model = alone, .step = 2});
  EXPECT_TRUE(io::Hdf5File(other / checkpoint::part_name(1), io::Hdf5File::Mode::kRead).dataset_names().empty());
  for (const auto& entry : fs::directory_iterator(other)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name.ends_with(".h5") || name == "manifest.json") << name << " is left over";
  }
}

// The file merges three dims, two of which are cut: no regular part of it, so that it is shown and read in pieces.
TEST_F(CheckpointLayouts, PartsThatAreIrregularInTheFileAreShownInPieces) {
  struct Merged : nn::Module {
    explicit Merged(const Layout& layout) {
      w = register_parameter("w", randn({2, 3, 4}, {.mesh = layout.mesh(), .placements = layout.placements()}))
              .with_file_shape({24});
    }
    nn::Parameter w;
  };
  const Layout crossed(cpu_mesh({2, 2}), {Shard(1), Shard(2)}, 3), split(cpu_mesh({4}), {Shard(2)}, 3);
  for (const auto& [from, to] : {std::pair(crossed, split), std::pair(split, crossed)}) {
    manual_seed(3);
    Merged saved(from);
    const fs::path path = checkpoint::save(folder_, {.model = saved, .step = 1});
    const HostTensor values = saved.w.value().to_host();
    std::vector<float> shown(24);
    io::Hdf5File(path / "model.h5", io::Hdf5File::Mode::kRead).read_box("model/w", {{0}, {24}}, shown.data());
    EXPECT_EQ(shown, values.to_vector<float>());
    Merged loaded(to);
    checkpoint::Contents contents{.model = loaded};
    checkpoint::load(folder_, contents);
    EXPECT_EQ(check_tensor(loaded.w.value(), values, 0), "");
  }
}

TEST_F(CheckpointLayouts, AnAsynchronousSaveHasTheValuesOfItsCall) {
  const LayoutChoice choice = choices()[1];
  Parts model(choice);
  nn::Parameter& matrix = model.parameters.front();
  optim::SGD optimizer({matrix}, {.lr = 0.5});
  const HostTensor before = matrix.value().to_host();
  checkpoint::save_async(folder_, {.model = model, .step = 1});
  for (int i = 0; i < 3; ++i) {  // writes into the parameter where nobody else holds it
    sum(mul(matrix, matrix)).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  checkpoint::save_async(folder_, {.model = model, .step = 2});
  const HostTensor after = matrix.value().to_host();
  checkpoint::wait();
  checkpoint::wait();
  EXPECT_FALSE(before.equals(after));
  for (const auto& [step, expected] : {std::pair(1, before), std::pair(2, after)}) {
    checkpoint::Contents contents{.model = model};
    checkpoint::load(folder_ / checkpoint::directory_name(step), contents);
    EXPECT_EQ(check_tensor(matrix.value(), expected, 0), "") << "step " << step;
  }
}

// What the config waits for may come after the save has returned; a save that waited for it would never end.
TEST_F(CheckpointLayouts, AConfigMayBeKnownLaterThanTheSaveBegins) {
  Parts model(choices()[1]);
  std::promise<std::string> known;
  checkpoint::save_async(folder_, {.model = model, .step = 1, .late_config = [later = known.get_future().share()] {
                                     return later.get();
                                   }});
  EXPECT_TRUE(checkpoint::is_writing());
  known.set_value("late");
  checkpoint::wait();
  EXPECT_EQ(checkpoint::latest(folder_)->config, "late");
  const auto failing = []() -> std::string { throw RuntimeFault("a step has failed"); };
  EXPECT_THROW(checkpoint::save(folder_, {.model = model, .step = 2, .late_config = failing}), RuntimeFault);
  EXPECT_EQ(checkpoint::latest(folder_)->step, 1);
}

TEST_F(CheckpointLayouts, AValueThatIsMissingFailsTheSaveWithTheReason) {
  Parts model(choices()[1]);
  checkpoint::save(folder_, {.model = model, .step = 1});
  fs::create_directories(folder_);
  std::ofstream(folder_ / "short") << "x";
  nn::Parameter& matrix = model.parameters.front();
  const Tensor whole = matrix.value().detach();
  // Its devices can't read it.
  matrix.set_value(io::file_slice(folder_ / "short", 0, {5, 3}, kFloat32, kFloat32, choices()[1].matrix));
  try {
    checkpoint::save(folder_, {.model = model, .step = 2});
    FAIL() << "a value was missing";
  } catch (const RuntimeFault& error) {
    EXPECT_NE(std::string(error.what()).find("short"), std::string::npos) << error.what();
  }
  EXPECT_EQ(checkpoint::latest(folder_)->step, 1);
  checkpoint::save_async(folder_, {.model = model, .step = 3});
  EXPECT_THROW(checkpoint::save(folder_, {.model = model, .step = 4}), RuntimeFault);
  checkpoint::wait();
  EXPECT_EQ(checkpoint::latest(folder_)->step, 1);
  // Another node may have been about to write its part when the first failed; the next save takes away what it left.
  matrix.set_value(whole);
  checkpoint::save(folder_, {.model = model, .step = 5});
  for (const char* begun : {".tmp-step-000002", ".tmp-step-000003", ".tmp-step-000004"})
    EXPECT_FALSE(fs::exists(folder_ / begun)) << begun;
}

TEST_F(CheckpointLayouts, AByteThatChangesAnywhereInAPartIsFound) {
  Parts model(choices()[1]);
  const fs::path path = checkpoint::save(folder_, {.model = model, .step = 1});
  for (const auto& [name, facts] : checkpoint::read_complete(path).files) {
    const std::string bytes = io::read_file(path / name);
    for (size_t at = 0; at < bytes.size(); at += bytes.size() / 40 + 1) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 4);
      std::ofstream(path / name, std::ios::binary | std::ios::trunc) << changed;
      EXPECT_THROW(checkpoint::read_complete(path), RuntimeFault) << name << ", byte " << at;
    }
    std::ofstream(path / name, std::ios::binary | std::ios::trunc) << bytes;
  }
  EXPECT_NO_THROW(checkpoint::read_complete(path));
}

TEST_F(CheckpointLayouts, CanBeListedComparedAndExported) {
  Parts model(choices()[1]);
  checkpoint::save(folder_, {.model = model, .step = 1});
  nn::Parameter& matrix = model.parameters.front();
  matrix.set_value(matrix.value().detach() + 1);
  checkpoint::save(folder_, {.model = model, .step = 2});
  const auto listed = checkpoint::list(folder_);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].step, 2);
  EXPECT_EQ(listed[0].num_files, 3);
  EXPECT_EQ(listed[0].problem, "");
  EXPECT_EQ(checkpoint::differences(folder_ / "step-000001", folder_),
            std::vector<std::string>{"model/matrix: values differ"});
  EXPECT_EQ(checkpoint::export_safetensors(folder_, folder_ / "out.safetensors"), 6);
  const auto file = safetensors::open(folder_ / "out.safetensors");
  EXPECT_EQ(file.entries().at("heads").shape, (Shape{12, 6}));
  EXPECT_EQ(check_tensor(file.load("matrix", kFloat32, choices()[2].matrix), matrix.value().to_host(), 0), "");
  EXPECT_EQ(check_tensor(file.load("bias", kBFloat16, choices()[2].bias), model.parameters[3].value().to_host(), 0),
            "");
}

TEST_F(CheckpointLayouts, OnesOfTheFirstFormatStillLoad) {
  fs::create_directories(folder_ / "step-000009");
  const HostTensor values = HostTensor::of<float>({2}, {3, 4});
  struct Two : nn::Module {
    Two() { b = register_parameter("b", zeros({2}, {.mesh = cpu_mesh({2}), .placements = {Shard(0)}})); }
    nn::Parameter b;
  } model;
  const fs::path file = folder_ / "step-000009" / "model.h5";
  io::Hdf5File old(file, io::Hdf5File::Mode::kCreate);
  old.set_attribute("format", int64_t{1});
  old.write("model/b", values);
  old.close();
  const checkpoint::FileFacts facts = checkpoint::facts_of(file);
  io::write_file(folder_ / "step-000009" / "manifest.json",
                 R"({"format": 1, "step": 9, "files": {"model.h5": {"bytes": )" + std::to_string(facts.bytes) +
                     R"(, "xxh3_128": ")" + facts.hash + "\"}}}");
  checkpoint::Contents contents{.model = model};
  EXPECT_EQ(checkpoint::load(folder_, contents).step, 9);
  EXPECT_EQ(check_tensor(model.b.value(), values, 0), "");
}

TEST(Hdf5Files, AFullDiskIsAnErrorAtTheCallThatMetIt) {
  io::Hdf5File file("/dev/full", io::Hdf5File::Mode::kCreate);
  try {
    for (int i = 0; i < 8; ++i) file.write("x" + std::to_string(i), HostTensor({1 << 18}, kFloat32));
    file.close();
    FAIL() << "nothing can be written there";
  } catch (const RuntimeFault& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
  }
}

TEST(CheckpointBoxes, AreShownInTheShapeOfTheFile) {
  const auto slab = [](const Shape& shape, const Box& box, const Shape& file) {
    const auto found = io::slab_of(shape, box, file);
    return found ? found->start.str() + found->stride.str() + found->count.str() + found->block.str() : "none";
  };
  EXPECT_EQ(slab({3, 4, 6}, {{1, 0, 0}, {2, 4, 6}}, {12, 6}), "[4, 0][12, 6][1, 1][8, 6]");
  EXPECT_EQ(slab({3, 4, 6}, {{0, 2, 3}, {3, 2, 3}}, {12, 6}), "[2, 3][4, 6][3, 1][2, 3]");
  EXPECT_EQ(slab({3, 4}, {{1, 1}, {1, 2}}, {12}), "[5][4][1][2]");
  EXPECT_EQ(slab({2, 3, 4}, {{0, 0, 0}, {2, 2, 2}}, {24}), "none");
  EXPECT_EQ(slab({3, 4}, {{0, 0}, {3, 4}}, {4, 3}), "none") << "not a merger of neighbours";
  const auto parts = io::slabs_of({2, 3, 4}, {{0, 1, 2}, {2, 2, 2}}, {24});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].part, (Box{{1, 1, 2}, {1, 2, 2}}));
  EXPECT_EQ(parts[1].slab.start, (Shape{18}));
  EXPECT_THROW(io::slabs_of({3, 4}, {{0, 0}, {3, 4}}, {4, 3}), InternalError);
}

TEST(CheckpointBoxes, BlocksFollowOneAnotherAndEndWithChunks) {
  std::vector<std::string> blocks;
  const auto note = [&](const Box& block) { blocks.push_back(block.str()); };
  io::for_each_block({{0, 0}, {5, 4}}, 12, 8, note);
  EXPECT_EQ(blocks, (std::vector<std::string>{"[0:2, 0:4]", "[2:4, 0:4]", "[4:5, 0:4]"}));
  blocks.clear();
  io::for_each_block({{1, 0}, {2, 4}}, 3, 1, note);
  EXPECT_EQ(blocks, (std::vector<std::string>{"[1:2, 0:3]", "[1:2, 3:4]", "[2:3, 0:3]", "[2:3, 3:4]"}));
  blocks.clear();
  io::for_each_block(whole({}), 3, 1, note);
  EXPECT_EQ(blocks.size(), 1u);
  io::for_each_block(whole({0, 2}), 3, 1, note);
  EXPECT_EQ(blocks.size(), 1u);
}

}  // namespace
}  // namespace dtorch::test
