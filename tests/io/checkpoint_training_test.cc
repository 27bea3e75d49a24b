// Training that goes on from a checkpoint on any layout is the training that was never interrupted: a Llama with
// experts, saved under each of six layouts and loaded under every other one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "dtorch/io.h"
#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

struct Form {
  std::string name;
  Shape shape;
  std::vector<std::string> axes;
  nn::LlamaParallel parallel;
  Placement batch;  // on the one axis of a stage's mesh
};

// Three heads, so that tp 2 is uneven; and an odd vocabulary.
const nn::LlamaConfig kModel{
    .dim = 24, .layers = 2, .heads = 3, .vocab = 11, .ffn = 16, .experts = 4, .init_std = 0.2, .dtype = kFloat64};
const std::vector<Form> kForms = {
    {"one", {1}, {"dp"}, {}, Shard(0)},
    {"dp 4, zero 3", {4}, {"dp"}, {.zero = "dp", .zero_stage = 3}, Shard(0)},
    {"tp 3", {3}, {"tp"}, {.tp = "tp"}, Replicate()},
    {"pp 2 x tp 2", {2, 2}, {"pp", "tp"}, {.tp = "tp", .pp = "pp"}, Replicate()},
    {"ep 2", {2}, {"ep"}, {.ep = "ep"}, Shard(0)},
    {"uneven tp 2", {2}, {"tp"}, {.tp = "tp"}, Replicate()},
};
constexpr int64_t kBefore = 3, kAfter = 5;  // steps

class Training {
 public:
  Training(const Form& form, uint64_t seed)
      : batch_(form.batch), model_(make(form, seed)), optimizer_(model_.parameters(), {.lr = 0.01}) {}

  double train(int64_t step) {
    HostTensor tokens({4, 7}, kInt64);
    for (int64_t i = 0; i < tokens.num_elements(); ++i)
      tokens.mutable_data<int64_t>()[i] = (step * 31 + i * i * 7 + i) % kModel.vocab;
    const Tensor all = from_host(tokens, {.mesh = model_.chunk_mesh(0), .placements = {batch_}});
    const Tensor loss = model_.loss(all.slice(1, 0, 6), all.slice(1, 1, 7));
    loss.backward();
    nn::clip_grad_norm(model_.parameters(), 1.0);
    optimizer_.step();
    optimizer_.zero_grad();
    return loss.item<double>();
  }
  checkpoint::Contents contents(int64_t step = 0) { return {.model = model_, .optimizer = optimizer_, .step = step}; }

  // Parameters and optimizer state by name.
  std::map<std::string, HostTensor> values() const {
    std::map<std::string, HostTensor> out;
    const nn::NamedParameters parameters = model_.named_parameters();
    const auto state = optimizer_.state();
    for (size_t i = 0; i < parameters.size(); ++i) {
      out[parameters[i].first] = parameters[i].second.value().to_host();
      for (const auto& [kind, tensor] : state.at(i)) out[parameters[i].first + " " + kind] = tensor.to_host();
    }
    return out;
  }

 private:
  static nn::Llama make(const Form& form, uint64_t seed) {
    manual_seed(seed);
    nn::LlamaParallel parallel = form.parallel;
    parallel.mesh = cpu_mesh(form.shape, form.axes);
    return nn::Llama(kModel, parallel);
  }
  const Placement batch_;
  nn::Llama model_;
  optim::AdamW optimizer_;
};

class CheckpointTraining : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    folder_ = fs::temp_directory_path() / ("dtorch_checkpoint_training_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    KernelTest::TearDown();
  }
  fs::path folder_;
};

TEST_F(CheckpointTraining, GoesOnUnderEveryOtherLayoutAsIfItHadNeverStopped) {
  std::vector<double> uninterrupted;
  {
    Training run(kForms.front(), 11);
    for (int64_t step = 0; step < kBefore + kAfter; ++step) uninterrupted.push_back(run.train(step));
  }
  EXPECT_LT(uninterrupted.back(), uninterrupted.front());
  const auto expect_loss = [&](Training& run, int64_t step) {
    const double expected = uninterrupted[static_cast<size_t>(step)];
    EXPECT_NEAR(run.train(step), expected, 1e-9 * expected) << "step " << step;
  };
  for (const Form& from : kForms) {
    Training saved(from, 11);
    for (int64_t step = 0; step < kBefore; ++step) expect_loss(saved, step);
    checkpoint::save(folder_, saved.contents(kBefore));
    const auto values = saved.values();
    for (const Form& to : kForms) {
      if (&to == &from) continue;
      SCOPED_TRACE("from " + from.name + " to " + to.name);
      Training loaded(to, 12);
      checkpoint::Contents contents = loaded.contents();
      EXPECT_EQ(checkpoint::load(folder_, contents).step, kBefore);
      const auto found = loaded.values();
      ASSERT_EQ(found.size(), values.size());
      for (const auto& [name, value] : values) EXPECT_TRUE(found.at(name).equals(value)) << name;
      for (int64_t step = kBefore; step < kBefore + kAfter; ++step) expect_loss(loaded, step);
    }
  }
}

}  // namespace
}  // namespace dtorch::test
