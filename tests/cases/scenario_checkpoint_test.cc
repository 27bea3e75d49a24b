// scenario_cases.md: C23, save on one layout, load on another.
#include <unistd.h>

#include <filesystem>

#include "io/checkpoint.h"
#include "nn/optim.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

const Shape kShapes[] = {{5, 3}, {6}, {7, 2}, {1}};

// Where the four parameters are.
struct Spread {
  std::string name;
  std::vector<Layout> layouts;
};

Spread split_rows(int64_t devices) {
  Spread spread{std::to_string(devices) + " devices", {}};
  for (const Shape& shape : kShapes) spread.layouts.emplace_back(cpu_mesh({devices}), Placements{S(0)}, shape.ndim());
  return spread;
}
std::vector<Spread> spreads() {
  const DeviceMesh both = cpu_mesh({2, 2}, {"dp", "tp"}), first("cpu", {2}, {0, 1}), second("cpu", {2}, {2, 3});
  return {split_rows(4),
          split_rows(3),
          split_rows(1),
          split_rows(8),
          {"dp 2, tp 2",
           {Layout(both, {R(), S(0)}, 2), Layout(both, {R(), S(0)}, 1), Layout(both, {R(), S(1)}, 2),
            Layout::replicated(both)}},
          {"pp 2, dp 2",
           {Layout(first, {S(0)}, 2), Layout::replicated(first), Layout(second, {S(0)}, 2), Layout(second, {S(0)}, 1)}},
          {"zero over dp 2, tp 2",
           {Layout(both, {S(0), S(0)}, 2, std::vector<std::string>{"tp", "dp"}), Layout(both, {S(0), S(0)}, 1),
            Layout(both, {S(0), S(1)}, 2), Layout(both, {S(0), R()}, 1)}}};
}

struct FourParameters : nn::Module {
  explicit FourParameters(const Spread& spread) {
    for (size_t i = 0; i < 4; ++i) {
      all.push_back(register_parameter("p" + std::to_string(i),
                                       distribute(normal(kShapes[i], kFloat32, 50 + i), spread.layouts[i])));
    }
  }
  Tensor loss(uint64_t step) const {
    const DeviceMesh mesh = all[0].value().mesh();
    Tensor total;
    for (const nn::Parameter& p : all) {
      const Tensor goal = from_host(normal(p.shape(), kFloat32, 1000 * step + 3), {.mesh = p.value().mesh()});
      Tensor term = sum(square(p.value() - goal));
      if (term.mesh() != mesh) term = term.redistribute(mesh, Placements(mesh.num_axes(), R()));
      total = total.defined() ? total + term : term;
    }
    return total;
  }
  std::vector<nn::Parameter> all;
};

std::vector<float> train(FourParameters& model, optim::Optimizer& optimizer, uint64_t from, uint64_t to) {
  std::vector<float> losses;
  for (uint64_t step = from; step < to; ++step) {
    const Tensor loss = model.loss(step);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

std::unique_ptr<optim::Optimizer> adam(const std::vector<nn::Parameter>& parameters) {
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.05});
}
std::unique_ptr<optim::Optimizer> momentum(const std::vector<nn::Parameter>& parameters) {
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.01, .momentum = 0.9});
}
using MakeOptimizer = std::unique_ptr<optim::Optimizer> (*)(const std::vector<nn::Parameter>&);

std::vector<HostTensor> values_of(const FourParameters& model) {
  std::vector<HostTensor> values;
  for (const nn::Parameter& p : model.all) values.push_back(p.value().to_host());
  return values;
}
std::vector<HostTensor> state_of(const optim::Optimizer& optimizer) {
  std::vector<HostTensor> values;
  for (const optim::StateTensors& of_parameter : optimizer.state()) {
    for (const auto& [name, tensor] : of_parameter) values.push_back(tensor.to_host());
  }
  return values;
}

class CheckpointCase : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    directory_ = std::filesystem::temp_directory_path() / ("dtorch_c23_" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override {
    std::filesystem::remove_all(directory_);
    KernelTest::TearDown();
  }

  // Loads on `to` and goes on as `uninterrupted` does: bit for bit where sums have the same parts.
  void expect_continues(const Spread& to, MakeOptimizer make, const std::vector<HostTensor>& saved,
                        const std::vector<HostTensor>& state, const RandomState& random,
                        const std::vector<float>& uninterrupted, bool bitwise) {
    FourParameters other(to);
    const auto optimizer = make(other.parameters());
    manual_seed(99);
    checkpoint::Contents contents{.model = other, .optimizer = optimizer.get()};
    EXPECT_EQ(checkpoint::load(directory_, contents).step, 17);
    EXPECT_EQ(contents.step, 17);
    EXPECT_EQ(optimizer->steps(), 17);
    EXPECT_EQ(client().graph().random_state(), random);
    for (size_t i = 0; i < saved.size(); ++i) EXPECT_EQ(check_tensor(other.all[i], saved[i], 0), "") << i;
    const std::vector<HostTensor> loaded_state = state_of(*optimizer);
    ASSERT_EQ(loaded_state.size(), state.size());
    for (size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(loaded_state[i].equals(state[i])) << i;
    const std::vector<float> losses = train(other, *optimizer, 3, 13);
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], uninterrupted[i], bitwise ? 0 : 1e-5 * uninterrupted[i]) << i;
    }
  }

  std::filesystem::path directory_;
};

TEST_F(CheckpointCase, C23SaveOnOneLayoutLoadOnAnother) {
  const std::vector<Spread> all = spreads();
  for (const MakeOptimizer make : {adam, momentum}) {
    for (const size_t from : {size_t{0}, size_t{4}, size_t{5}, size_t{6}}) {
      FourParameters model(all[from]);
      const auto optimizer = make(model.parameters());
      optimizer->set_steps(14);
      train(model, *optimizer, 0, 3);
      manual_seed(5);
      randn({2});
      const RandomState random = client().graph().random_state();
      checkpoint::save(directory_, {.model = model, .optimizer = optimizer.get(), .step = 17, .config = "{}"});
      const std::vector<HostTensor> saved = values_of(model), state = state_of(*optimizer);
      EXPECT_EQ(state.size(), make == adam ? 8u : 4u);
      const std::vector<float> uninterrupted = train(model, *optimizer, 3, 13);
      for (size_t to = 0; to < all.size(); ++to) {
        SCOPED_TRACE(all[from].name + " to " + all[to].name);
        expect_continues(all[to], make, saved, state, random, uninterrupted, from == to);
      }
    }
  }
}

TEST_F(CheckpointCase, C23TwoMoreStepsBeforeAnAsynchronousSaveEnds) {
  const std::vector<Spread> all = spreads();
  for (const MakeOptimizer make : {adam, momentum}) {
    FourParameters model(all[0]);
    const auto optimizer = make(model.parameters());
    optimizer->set_steps(14);
    train(model, *optimizer, 0, 3);
    const RandomState random = client().graph().random_state();
    const std::vector<HostTensor> saved = values_of(model), state = state_of(*optimizer);
    checkpoint::save_async(directory_, {.model = model, .optimizer = optimizer.get(), .step = 17, .config = "{}"});
    std::vector<float> uninterrupted = train(model, *optimizer, 3, 5);
    checkpoint::wait();
    const std::vector<float> rest = train(model, *optimizer, 5, 13);
    uninterrupted.insert(uninterrupted.end(), rest.begin(), rest.end());
    for (const size_t to : {size_t{0}, size_t{1}, size_t{4}}) {
      expect_continues(all[to], make, saved, state, random, uninterrupted, to == 0);
    }
  }
}

// One key missing and one too many: both listed, nothing loaded.
TEST_F(CheckpointCase, C23KeysThatDontFit) {
  FourParameters model(spreads()[0]);
  checkpoint::save(directory_, {.model = model, .step = 17});
  struct Renamed : nn::Module {
    Renamed() : p(register_parameter("unknown", zeros({5, 3}))) {}
    nn::Parameter p;
  };
  Renamed renamed;
  checkpoint::Contents wrong{.model = renamed};
  const std::string what = message_of<KeyError>([&] { checkpoint::load(directory_, wrong); });
  EXPECT_TRUE(contains(what, "unknown") && contains(what, "p0")) << what;
  EXPECT_TRUE(contains(what, "scenario_checkpoint_test.cc")) << what;
  EXPECT_TRUE(renamed.p.value().to_host().equals(HostTensor({5, 3}, kFloat32)));
}

}  // namespace
}  // namespace dtorch::test
