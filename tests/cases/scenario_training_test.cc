// scenario_cases.md: C17 to C21; head exchange (C19) is in scenario_index_test.cc, C23 in scenario_checkpoint_test.cc.
// Left out: C26 and C30 (killing workers and the start-up matrix; what there is stands in tests/programs and
// tests/launch).
#include <cmath>
#include <functional>

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
  const auto run = [&](const HostTensor& targets, const DeviceMesh& mesh, const Placements& placements) {
    const Tensor x = distribute(logits, mesh, placements).requires_grad_();
    Placements of_targets = placements;
    for (Placement& p : of_targets) p = p.is_shard(2) ? R() : p;
    const Tensor loss = cross_entropy(x, distribute(targets, mesh, of_targets));
    loss.backward();
    return std::pair(loss.item<double>(), x.grad().to_host());
  };
  const auto [one, one_gradient] = run(half, cpu_mesh({1}), {R()});
  EXPECT_TRUE(std::isfinite(one));
  for (double g : one_gradient.to_vector<double>()) EXPECT_TRUE(std::isfinite(g));
  // Sequences split unevenly, over more devices than positions, on two axes, and classes split too.
  const std::vector<std::pair<Shape, Placements>> layouts = {
      {{2}, {S(1)}}, {{3}, {S(1)}}, {{2, 2}, {S(1), S(1)}}, {{2, 2}, {S(1), S(2)}}, {{4, 2}, {S(1), R()}}};
  for (const auto& [mesh, placements] : layouts) {
    SCOPED_TRACE(placements.str());
    const auto [loss, gradient] = run(half, cpu_mesh(mesh), placements);
    EXPECT_NEAR(loss, one, 1e-12);
    EXPECT_EQ(difference(gradient, one_gradient, 1e-12), "");
    // Documented: 0 when every target is ignored, on any layout; then nothing is to be learned.
    const auto [nothing, no_gradient] = run(none, cpu_mesh(mesh), placements);
    EXPECT_EQ(nothing, 0);
    EXPECT_TRUE(no_gradient.equals(HostTensor({1, 8, 6}, kFloat64)));
  }
  EXPECT_EQ(run(none, cpu_mesh({1}), {R()}).first, 0);
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

}  // namespace
}  // namespace dtorch::test
