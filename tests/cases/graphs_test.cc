// Several Graphs in one process, from one thread and from several; handles that are dropped, moved and read while work
// is under way.
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "nn/layers.h"
#include "nn/optim.h"
#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

using GraphCase = KernelTest;

// What creates constants or draws random numbers on the way, forward or backward.
std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> uses() {
  const auto mask = [](const Tensor& x) { return x > 0; };
  return {
      {"plus a number", [](const Tensor& x) { return x + 1.0; }},
      {"where", [=](const Tensor& x) { return where(mask(x), x, 0.0) + where(mask(x), 2.0, x); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5) * dropout(x, 0.25); }},
      {"alpha_dropout", [](const Tensor& x) { return alpha_dropout(x, 0.5); }},
      {"channels dropped", [](const Tensor& x) { return feature_dropout(x, 0.5); }},
      {"noise", [](const Tensor& x) { return x + randn_like(x) + rand_like(x); }},
      {"gumbel", [](const Tensor& x) { return gumbel_softmax(x, 1.0, true); }},
      {"like", [](const Tensor& x) { return x + ones_like(x) * full_like(x, 3) - zeros_like(x); }},
      {"bernoulli", [](const Tensor& x) { return bernoulli(sigmoid(x)) + x; }},
      {"multinomial", [](const Tensor& x) { return to(multinomial(sigmoid(x), 2), kFloat64) + sum(x); }},
      {"categorical", [](const Tensor& x) { return to(categorical({}, x), kFloat64) + sum(x); }},
      {"normal", [](const Tensor& x) { return normal(x, 0.5) + x; }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 0) + cumprod(x, 1); }},
      {"extremes", [](const Tensor& x) { return max(x) + max(x, 0).first + amin(x, {1}, true); }},
      {"sorted", [](const Tensor& x) { return sort(x, 0).first + topk(x, 2, 1).first.sum(); }},
      {"variance", [](const Tensor& x) { return var(x, {0}) + std(x) + norm(x); }},
      {"cross_entropy", [](const Tensor& x) { return cross_entropy(x, argmax(x, 1), {.label_smoothing = 0.1}); }},
      {"losses",
       [](const Tensor& x) { return mse_loss(x, x * 2.0) + smooth_l1_loss(x, zeros_like(x)) + kl_div(x, sigmoid(x)); }},
      {"nonzero", [](const Tensor& x) { return to(nonzero(x).sum(), kFloat64) + sum(x); }},
      {"masked_select", [=](const Tensor& x) { return masked_select(x, mask(x)); }},
      {"index", [=](const Tensor& x) { return index(x, {mask(x)}) * 2.0; }},
      {"one_hot", [](const Tensor& x) { return to(one_hot(argmax(x, 1), 5), kFloat64) * sum(x); }},
      {"padded",
       [](const Tensor& x) {
         return pad(x, {1, 1}, "constant", 3);
       }},
      {"triangles", [](const Tensor& x) { return tril(x) + triu(x, 1) + sum(diagonal(x)); }},
      {"scattered",
       [](const Tensor& x) { return slice_scatter(x, select(x, 0, 0).unsqueeze(0), 0, 2, 3) + roll(x, {1}, {0}); }},
      {"conv",
       [](const Tensor& x) {
         return conv1d(unsqueeze(t(x), 0), unsqueeze(x, 2)).sum() + max_pool1d(unsqueeze(x, 0), 2).sum();
       }},
      {"batch_norm", [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, {.training = true}).y * x; }},
      {"group_norm", [](const Tensor& x) { return group_norm(unsqueeze(x, 0), 1) * 2.0; }},
      {"layer_norm", [](const Tensor& x) { return layer_norm(x, {4}, {}, {}) * x; }},
      {"attention",
       [](const Tensor& x) {
         const Tensor q = reshape(x, {1, 1, 5, 4});
         return scaled_dot_product_attention(q, q, q, {.is_causal = true, .dropout_p = 0.2});
       }},
      {"embedding", [](const Tensor& x) { return embedding(argmax(x, 1), x) + sum(x); }},
      {"einsum", [](const Tensor& x) { return einsum("ab,cb->ac", x, x) + matrix_power(matmul(x, t(x)), 2); }},
      {"matrix_power of 0", [](const Tensor& x) { return matrix_power(matmul(x, t(x)), 0) + sum(x); }},
      {"normalize", [](const Tensor& x) { return normalize(x) + cosine_similarity(x, x * 2.0, 1).sum(); }},
      {"histc", [](const Tensor& x) { return histc(x.detach(), 4) + sum(x); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.5) + heaviside(x, ones_like(x)); }},
      {"checks", [](const Tensor& x) { return x * (allclose(x, x) ? 2.0 : 3.0); }},
  };
}

struct Outcome {
  HostTensor value, gradient;
};
Outcome outcome(const std::function<Tensor(const Tensor&)>& use, Tensor x) {
  x = x.detach();
  x.requires_grad_();
  const Tensor y = use(x);
  sum(y * y).backward();
  return {y.to_host(), x.grad().to_host()};
}

TEST_F(GraphCase, ATensorsGraphDoesTheWorkWhateverGraphIsCurrent) {
  const Graph other = client().new_graph();
  const HostTensor value = normal({5, 4}, kFloat64, 3);
  for (const auto& [name, use] : uses()) {
    SCOPED_TRACE(name);
    const Tensor x = from_host(value, {.mesh = cpu_mesh({2})});
    client().manual_seed(5);
    const Outcome want = outcome(use, x);
    client().manual_seed(5);
    Graph seeded = other;
    seeded.manual_seed(77);
    const GraphScope scope(other);
    try {
      const Outcome got = outcome(use, x);
      EXPECT_TRUE(got.value.equals(want.value));
      EXPECT_TRUE(got.gradient.equals(want.gradient));
    } catch (const UserError& error) {
      ADD_FAILURE() << error.what();
    }
    EXPECT_EQ(other.random_state(), (RandomState{77, 0})) << "numbers were drawn from the other Graph";
  }
}

// A training step with collectives in both directions.
HostTensor trained(uint64_t seed, const DeviceMesh& mesh, int steps) {
  manual_seed(seed);
  Tensor w = randn({6, 5}, {.mesh = mesh, .placements = {S(1)}, .dtype = kFloat64});
  for (int step = 0; step < steps; ++step) {
    const Tensor x = randn({4, 6}, {.mesh = mesh, .placements = {S(0)}, .dtype = kFloat64});
    w.requires_grad_();
    const Tensor y = matmul(x.redistribute({R()}), w),
                 loss = mean(square(dropout(y, 0.1))) + sum(softmax(y.redistribute({S(0)}), 1).select(1, 0));
    loss.backward();
    const NoGrad no_grad;
    w = (w - w.grad() * 0.05).detach();
  }
  return w.to_host();
}

TEST_F(GraphCase, SeveralGraphsOfSeveralThreads) {
  constexpr int kThreads = 4, kSteps = 15;
  std::vector<HostTensor> alone;
  for (int i = 0; i < kThreads; ++i) {
    const GraphScope scope(client().new_graph());
    alone.push_back(trained(static_cast<uint64_t>(i), cpu_mesh({2 + i % 3}), kSteps));
  }
  std::vector<HostTensor> together(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i, graph = client().new_graph()] {
      const GraphScope scope(graph);
      together[static_cast<size_t>(i)] = trained(static_cast<uint64_t>(i), cpu_mesh({2 + i % 3}), kSteps);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) EXPECT_TRUE(together[i].equals(alone[i])) << i;
}

TEST_F(GraphCase, GraphsTakenInTurnsByOneThread) {
  std::vector<Graph> graphs;
  std::vector<Tensor> values;
  for (int i = 0; i < 5; ++i) {
    graphs.push_back(client().new_graph());
    const GraphScope scope(graphs.back());
    values.push_back(full({3, 4}, i, {.mesh = cpu_mesh({1 + i}), .placements = {S(0)}, .dtype = kFloat64}));
  }
  for (int round = 0; round < 40; ++round) {
    for (size_t i = 0; i < graphs.size(); ++i) {
      const GraphScope scope(graphs[i]);
      values[i] = values[i].redistribute({round % 2 == 0 ? S(1) : S(0)}) + 1.0;
    }
  }
  for (size_t i = 0; i < graphs.size(); ++i) {
    EXPECT_EQ(check_tensor(values[i], HostTensor::full<double>({3, 4}, 40.0 + static_cast<double>(i)), 0), "");
  }
}

// What ends there repeats itself, so that it is replayed on every Graph; else a stream of a few calls has no end here.
TEST_F(GraphCase, AnOptimizerStepsOnSeveralGraphsAndEndsItsStepOnEach) {
  constexpr int kTurns = 20;
  const Graph graphs[] = {client().new_graph(), client().new_graph(), client().new_graph()};
  std::vector<nn::Parameter> parameters;
  for (const Graph& graph : graphs) {
    const GraphScope scope(graph);
    parameters.emplace_back(distribute(iota({6, 5}), cpu_mesh({2}), {S(0)}));
  }
  optim::SGD sgd(parameters, {.lr = 0.25});
  client().synchronize();
  const int64_t before = client().stats().template_operators;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (nn::Parameter& parameter : parameters) parameter.set_grad(parameter.value().detach() * 1.0);
    sgd.step();
  }
  client().synchronize();
  // A product and a step a Graph and turn, the first ones loose.
  EXPECT_GT(client().stats().template_operators - before, 2 * 2 * kTurns) << "it ends on some Graphs only";
  const HostTensor want = (from_host(iota({6, 5})) * std::pow(0.75, kTurns)).to_host();
  for (const nn::Parameter& parameter : parameters) EXPECT_EQ(check_tensor(parameter.value(), want, 1e-6), "");
}

TEST_F(GraphCase, AGraphsHandleMayGoBeforeItsTensors) {
  Tensor kept;
  {
    const Graph graph = client().new_graph();
    const GraphScope scope(graph);
    kept = distribute(iota({5, 3}), cpu_mesh({2}), {S(0)});
  }
  EXPECT_EQ(check_tensor(kept, iota({5, 3}), 0), "");
  EXPECT_EQ(check_tensor(kept * 2.0, (from_host(iota({5, 3})) * 2.0).to_host(), 0), "");
  const std::string what = message_of<GraphError>([&] { kept + from_host(iota({5, 3}), {.mesh = cpu_mesh({2})}); });
  EXPECT_TRUE(contains(what, std::to_string(client().graph().id()))) << what;
}

TEST_F(GraphCase, HandlesDroppedByOtherThreads) {
  client().synchronize();
  const auto in_use = [] {
    client().synchronize();
    int64_t total = 0;
    for (int64_t bytes : client().stats().bytes_in_use_per_device) total += bytes;
    return total;
  };
  Tensor x = distribute(normal({64, 8}, kFloat64, 1), cpu_mesh({4}), {S(0)});
  const HostTensor want = (from_host(x.to_host()) + 200.0).to_host();
  const int64_t before = in_use();
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 50; ++i) {
      Tensor next = x + 1.0;
      threads.emplace_back([old = std::vector<Tensor>{x, next, x * 2.0}]() mutable { old.clear(); });
      x = next;
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(check_tensor(x, want, 1e-12), "");
  client().flush();
  EXPECT_EQ(in_use(), before);
}

TEST_F(GraphCase, ReadsSurviveWhatHappensToTheHandle) {
  std::vector<TensorFuture> reads;
  std::vector<HostTensor> wants;
  Tensor x = distribute(iota({6, 5}, kFloat64), cpu_mesh({3}), {S(0)});
  for (int i = 0; i < 60; ++i) {
    reads.push_back(x.to_host_async());
    wants.push_back((from_host(iota({6, 5}, kFloat64)) + static_cast<double>(i)).to_host());
    Tensor moved = std::move(x);
    x = moved.redistribute({i % 2 == 0 ? S(1) : S(0)}) + 1.0;
    moved = Tensor();
  }
  x = Tensor();
  for (size_t i = reads.size(); i-- > 0;) EXPECT_TRUE(reads[i].get().equals(wants[i])) << i;
}

TEST_F(GraphCase, AReadOutlivesItsGraph) {
  TensorFuture read;
  {
    const GraphScope scope(client().new_graph());
    read = (distribute(iota({6, 5}), cpu_mesh({3}), {S(0)}) * 2.0).to_host_async();
  }
  EXPECT_TRUE(read.get().equals((from_host(iota({6, 5})) * 2.0).to_host()));
}

TEST_F(GraphCase, AnotherThreadsCallIsRefused) {
  const Tensor x = distribute(iota({6, 5}), cpu_mesh({3}), {S(0)});
  std::string what;
  std::thread([&] {
    try {
      x + 1.0;
    } catch (const GraphError& error) {
      what = error.what();
    }
  }).join();
  EXPECT_TRUE(contains(what, "another thread")) << what;
  EXPECT_EQ(check_tensor(x, iota({6, 5}), 0), "");
}

}  // namespace
}  // namespace dtorch::test
