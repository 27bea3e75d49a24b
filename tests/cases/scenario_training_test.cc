// scenario_cases.md: C17 to C23; head exchange (C19) is in scenario_index_test.cc. Left out: C23 across pipeline stages
// and ZeRO, C26 and C30 (killing workers and the start-up matrix; what there is stands in tests/programs and
// tests/launch).
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "io/checkpoint.h"
#include "nn/optim.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

// Logits of two classes whose loss for class 0 is `loss`: log(1 + e^(l1 - l0)).
std::vector<double> logits_with_loss(double loss) { return {0, std::log(std::expm1(loss))}; }

TEST_F(ScenarioCase, C17LossPerTokenNotPerDevice) {
  // Two data shards of 5 tokens: five valid of loss 1, then one valid of loss 7.
  std::vector<double> logits;
  std::vector<int64_t> targets;
  for (int i = 0; i < 10; ++i) {
    const std::vector<double> pair = logits_with_loss(i == 5 ? 7 : 1);
    logits.insert(logits.end(), pair.begin(), pair.end());
    targets.push_back(i <= 5 ? 0 : -100);
  }
  const HostTensor logits_host = HostTensor::of<double>({10, 2}, logits),
                   targets_host = HostTensor::of<int64_t>({10}, targets);
  const auto loss_and_gradient = [&](const DeviceMesh& mesh, const Placement& placement) {
    const Tensor x = distribute(logits_host, mesh, {placement}).requires_grad_();
    const Tensor loss = cross_entropy(x, distribute(targets_host, mesh, {placement}));
    loss.backward();
    return std::pair(loss.item<double>(), x.grad().to_host());
  };
  const auto [one_loss, one_gradient] = loss_and_gradient(cpu_mesh({1}), R());
  const auto [loss, gradient] = loss_and_gradient(cpu_mesh({2}), S(0));
  EXPECT_NEAR(one_loss, 2.0, 1e-12);
  EXPECT_NEAR(loss, 2.0, 1e-12);
  EXPECT_EQ(difference(gradient, one_gradient, 1e-12), "");

  // (b) The same tokens as two accumulation steps: sums, divided once by the count of all.
  const Tensor whole = distribute(logits_host, cpu_mesh({2}), {R()}).requires_grad_();
  const Tensor all_targets = distribute(targets_host, cpu_mesh({2}), {R()});
  const Tensor count = to(count_valid(all_targets), kFloat64);
  double accumulated = 0;
  for (int64_t step = 0; step < 2; ++step) {
    const Tensor part = cross_entropy(narrow(whole, 0, 5 * step, 5), narrow(all_targets, 0, 5 * step, 5),
                                      {.reduction = Reduction::kSum}) /
                        count;
    part.backward();
    accumulated += part.item<double>();
  }
  EXPECT_NEAR(accumulated, 2.0, 1e-12);
  EXPECT_EQ(difference(whole.grad().to_host(), one_gradient, 1e-12), "");
}

TEST_F(ScenarioCase, C17IgnoredHalfAndAllIgnored) {
  const HostTensor logits = normal({1, 8, 6}, kFloat64, 17);
  const HostTensor half = HostTensor::of<int64_t>({1, 8}, {1, 0, 5, 2, -100, -100, -100, -100});
  const HostTensor none = HostTensor::full<int64_t>({1, 8}, -100);
  const auto loss_of = [&](const HostTensor& targets, const DeviceMesh& mesh, const Placement& placement) {
    const Tensor x = distribute(logits, mesh, {placement}).requires_grad_();
    const Tensor loss = cross_entropy(x, distribute(targets, mesh, {placement}));
    loss.backward();
    for (double g : x.grad().to_host().to_vector<double>()) EXPECT_TRUE(std::isfinite(g));
    return loss.item<double>();
  };
  const double one = loss_of(half, cpu_mesh({1}), R());
  EXPECT_TRUE(std::isfinite(one));
  EXPECT_NEAR(loss_of(half, cpu_mesh({2}), S(1)), one, 1e-12);
  // Documented: 0 when every target is ignored, on any layout.
  EXPECT_EQ(loss_of(none, cpu_mesh({1}), R()), 0);
  EXPECT_EQ(loss_of(none, cpu_mesh({2}), S(1)), 0);
}

TEST_F(ScenarioCase, C19GroupedQueryHeadsOverDevices) {
  struct Heads {
    int64_t query, kv, devices;
  };
  for (const Heads& heads : {Heads{28, 7, 2}, Heads{8, 2, 4}, Heads{12, 3, 4}}) {
    SCOPED_TRACE(std::to_string(heads.query) + " over " + std::to_string(heads.kv));
    const HostTensor q = normal({2, heads.query, 5, 4}, kFloat64, 1), k = normal({2, heads.kv, 5, 4}, kFloat64, 2),
                     v = normal({2, heads.kv, 5, 4}, kFloat64, 3);
    const auto run = [&](const DeviceMesh& mesh, const Placement& placement) {
      const std::vector<Tensor> in = {distribute(q, mesh, {placement}).requires_grad_(),
                                      distribute(k, mesh, {R()}).requires_grad_(),
                                      distribute(v, mesh, {R()}).requires_grad_()};
      const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true});
      sum(square(out)).backward();
      return std::vector<Tensor>{out, in[0].grad(), in[1].grad(), in[2].grad()};
    };
    const std::vector<Tensor> one = run(cpu_mesh({1}), R()), several = run(cpu_mesh({heads.devices}), S(1));
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(check_tensor(several[i], one[i].to_host(), 1e-11), "") << i;
    expect_local_shapes(several[0],
                        std::vector<Shape>(static_cast<size_t>(heads.devices), {2, heads.query / heads.devices, 5, 4}));
  }
}

TEST_F(ScenarioCase, C21RandomNumbers) {
  struct Draw {
    std::string name;
    std::function<Tensor(const TensorOptions&)> make;
  };
  const std::vector<Draw> draws = {
      {"normal",
       [](const TensorOptions& options) {
         return randn({6, 10}, options);
       }},
      {"uniform",
       [](const TensorOptions& options) {
         return rand({5, 3}, options);
       }},
      {"dropout",
       [](const TensorOptions& options) {
         return dropout(ones({6, 10}, options), 0.5);
       }},
  };
  for (const Draw& draw : draws) {
    SCOPED_TRACE(draw.name);
    manual_seed(7);
    const HostTensor first = draw.make({}).to_host(), second = draw.make({}).to_host();
    EXPECT_FALSE(first.equals(second));
    std::vector<TensorOptions> layouts;
    for (int64_t devices : {1, 2, 3, 4, 8}) {
      for (const Placement& placement : {R(), S(0), S(1)})
        layouts.push_back({.mesh = cpu_mesh({devices}), .placements = {placement}});
    }
    layouts.push_back({.mesh = cpu_mesh({2, 2}), .placements = {S(0), S(1)}});
    for (const TensorOptions& options : layouts) {
      manual_seed(7);
      EXPECT_EQ(check_tensor(draw.make(options), first, 0), "");
      EXPECT_EQ(check_tensor(draw.make(options), second, 0), "");
    }
    // After save and load of the generator the sequence goes on.
    manual_seed(7);
    draw.make({});
    const RandomState saved = client().graph().random_state();
    manual_seed(1234);
    draw.make({});
    Graph graph = client().graph();
    graph.set_random_state(saved);
    EXPECT_TRUE(draw.make({}).to_host().equals(second));
  }
}

// A model of the case's shapes, every parameter Shard(0), and three steps of AdamW behind it.
struct FourParameters : nn::Module {
  explicit FourParameters(int64_t devices) {
    const Shape shapes[] = {{5, 3}, {6}, {7, 2}, {1}};
    for (size_t i = 0; i < 4; ++i) {
      all.push_back(register_parameter("p" + std::to_string(i),
                                       distribute(normal(shapes[i], kFloat32, 50 + i), cpu_mesh({devices}), {S(0)})));
    }
  }
  Tensor loss(uint64_t step) const {
    Tensor total;
    for (const nn::Parameter& p : all) {
      const Tensor goal = from_host(normal(p.shape(), kFloat32, 1000 * step + 3), {.mesh = p.value().mesh()});
      const Tensor term = sum(square(p.value() - goal));
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
  std::filesystem::path directory_;
};

TEST_F(CheckpointCase, C23SaveOnOneLayoutLoadOnAnother) {
  FourParameters model(4);
  optim::AdamW optimizer(model.parameters(), {.lr = 0.05});
  optimizer.set_steps(14);
  train(model, optimizer, 0, 3);
  manual_seed(5);
  randn({2});
  const RandomState random = client().graph().random_state();
  checkpoint::save(directory_, {.model = model, .optimizer = &optimizer, .step = 17, .config = "{}"});
  std::vector<HostTensor> saved;
  for (const nn::Parameter& p : model.all) saved.push_back(p.value().to_host());
  const std::vector<float> uninterrupted = train(model, optimizer, 3, 13);

  for (int64_t devices : {3, 1, 8}) {
    SCOPED_TRACE(devices);
    FourParameters other(devices);
    optim::AdamW other_optimizer(other.parameters(), {.lr = 0.05});
    manual_seed(99);
    checkpoint::Contents contents{.model = other, .optimizer = &other_optimizer};
    const checkpoint::Found found = checkpoint::load(directory_, contents);
    EXPECT_EQ(found.step, 17);
    EXPECT_EQ(contents.step, 17);
    EXPECT_EQ(other_optimizer.steps(), 17);
    EXPECT_EQ(client().graph().random_state(), random);
    for (size_t i = 0; i < saved.size(); ++i) EXPECT_EQ(check_tensor(other.all[i], saved[i], 0), "") << i;
    const std::vector<float> losses = train(other, other_optimizer, 3, 13);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], uninterrupted[i], 1e-5 * uninterrupted[i]) << i;
  }

  // One key missing and one too many: both listed, nothing loaded.
  struct Renamed : nn::Module {
    Renamed() : p(register_parameter("unknown", zeros({5, 3}))) {}
    nn::Parameter p;
  };
  Renamed renamed;
  checkpoint::Contents wrong{.model = renamed};
  const std::string what = message_of<KeyError>([&] { checkpoint::load(directory_, wrong); });
  EXPECT_TRUE(contains(what, "unknown") && contains(what, "p0")) << what;
  EXPECT_TRUE(renamed.p.value().to_host().equals(HostTensor({5, 3}, kFloat32)));
}

}  // namespace
}  // namespace dtorch::test
