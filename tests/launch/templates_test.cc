// Programs with templates and without give the same bits: loops, loops that change, values that live on.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dtorch/dtorch.h"
#include "dtorch/nn.h"

namespace dtorch {
namespace {

int run_with(std::vector<std::string> words, const std::function<void(Client&)>& program) {
  words.insert(words.begin(), "program");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return run(static_cast<int>(words.size()), pointers.data(), program);
}

using Values = std::vector<std::vector<float>>;

struct Outcome {
  Values values;
  ClientStats stats;
};

// Runs the program with templates or without.
Outcome outcome_of(const char* nodes, bool templates, const std::function<Values(Client&)>& program,
                   const std::string& inflight = "16384") {
  Outcome outcome;
  const int code = run_with(
      {"--devices", "3", "--nodes", nodes, "--templates", templates ? "on" : "off", "--inflight-operators", inflight},
      [&](Client& client) {
        outcome.values = program(client);
        client.synchronize();
        outcome.stats = client.stats();
      });
  EXPECT_EQ(code, 0);
  return outcome;
}

TensorOptions sharded() { return {.mesh = init_device_mesh("cpu", {3}), .placements = {Shard(0)}}; }

// A body of random calls over a few variables that go from turn to turn. Some turns do something else in the middle.
struct LoopProgram {
  uint32_t seed;
  int turns = 12;
  double unusual = 0.15;  // share of the turns
  double reads = 0.4;

  Values operator()(Client&) const {
    Values values;
    std::mt19937 body_random(seed);
    const uint32_t length = 3 + body_random() % 60;
    std::vector<uint32_t> body(3 * length);
    for (uint32_t& word : body) word = body_random();
    std::mt19937 random(seed + 1);
    const auto chance = [&](double share) { return random() % 1000 < share * 1000; };
    std::vector<Tensor> kept = {full({7}, 1.5, sharded()), full({7}, 0.25, sharded()), full({7}, -2.0, sharded())};
    const Tensor constant = full({7}, 0.5, sharded());
    for (int turn = 0; turn < turns; ++turn) {
      std::vector<Tensor> pool = kept;
      if (body[0] % 3 == 0) {
        pool.push_back(from_host(HostTensor::of<float>({7}, {1, 2, 3, 4, 5, 6, static_cast<float>(turn)}), sharded()));
      }
      const uint32_t odd = chance(unusual) ? random() % length : length;
      for (uint32_t i = 0; i < length; ++i) {
        const Tensor a = pool[body[3 * i] % pool.size()];
        const Tensor b = pool[body[3 * i + 1] % pool.size()];
        if (i == odd) pool.back() = pool.back() + a;
        switch (body[3 * i + 2] % 6) {
          case 0:
            pool.push_back(a + b * constant);
            break;
          case 1:
            pool.push_back(a - b);
            break;
          case 2:
            pool.push_back((-a) * constant);
            break;
          case 3:
            pool.push_back(a.redistribute({Replicate()}).redistribute({Shard(0)}));
            break;
          case 4:
            pool[body[3 * i] % pool.size()] = b + constant;  // the old value may be the last of its kind
            break;
          case 5:
            (void)(a + b);  // dead
            break;
        }
        if (pool.size() > 6) pool.erase(pool.begin() + 1);
      }
      for (size_t k = 0; k < kept.size(); ++k) kept[k] = pool[pool.size() - 1 - k % pool.size()] * constant;
      if (chance(reads)) values.push_back(kept[0].to_host().to_vector<float>());
    }
    for (const Tensor& tensor : kept) values.push_back(tensor.to_host().to_vector<float>());
    return values;
  }
};

class Templates : public testing::TestWithParam<const char*> {};

TEST_P(Templates, RandomLoopsGiveTheSameBits) {
  int64_t replayed = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const LoopProgram program{seed, 12, 0.15, seed % 4 == 0 ? 0.5 : 1};
    const Outcome on = outcome_of(GetParam(), true, program);
    const Outcome off = outcome_of(GetParam(), false, program);
    ASSERT_EQ(on.values, off.values);
    EXPECT_EQ(off.stats.template_operators, 0);
    replayed += on.stats.template_operators;
  }
  EXPECT_GT(replayed, 1000);
}

TEST_P(Templates, LoopsWithoutReadsAndLittleCreditGiveTheSameBits) {
  int64_t replayed = 0;
  for (uint32_t seed = 101; seed <= 105; ++seed) {
    SCOPED_TRACE(seed);
    const LoopProgram program{seed, 80, 0.02, 0};
    const Outcome on = outcome_of(GetParam(), true, program, "100");
    ASSERT_EQ(on.values, outcome_of(GetParam(), false, program).values);
    replayed += on.stats.template_operators;
  }
  EXPECT_GT(replayed, 1000);
}

TEST_P(Templates, ValuesMadeByReplaysOutliveThem) {
  const auto program = [](Client& client) {
    std::vector<Tensor> all;
    Tensor y = full({5}, 1.0, sharded());
    const Tensor b = full({5}, 0.5, sharded());
    for (int i = 0; i < 10; ++i) {
      Tensor t = y * b;
      all.push_back(t + b);
      y = t + y;
      client.flush();
    }
    Values values;
    for (const Tensor& tensor : all) values.push_back(tensor.to_host().to_vector<float>());
    return values;
  };
  const Outcome on = outcome_of(GetParam(), true, program);
  EXPECT_EQ(on.values, outcome_of(GetParam(), false, program).values);
  EXPECT_GE(on.stats.template_operators, 6 * 3);
}

struct Difference {
  const char* what;
  std::function<Tensor(const Tensor&)> call;  // in the place of x + x
};

std::vector<Difference> differences() {
  const auto at = [](int64_t size, DType dtype, const Placements& placements) {
    return full({size}, 2.0, {.mesh = init_device_mesh("cpu", {3}), .placements = placements, .dtype = dtype});
  };
  return {
      {"shape",
       [=](const Tensor& x) {
         const Tensor other = at(4, kFloat32, {Shard(0)});
         (void)(other + other);
         return x + x;
       }},
      {"dtype",
       [=](const Tensor& x) {
         const Tensor other = at(7, kFloat64, {Shard(0)});
         (void)(other + other);
         return x + x;
       }},
      {"placement",
       [=](const Tensor& x) {
         const Tensor other = at(7, kFloat32, {Replicate()});
         (void)(other + other);
         return x + x;
       }},
      {"operator", [](const Tensor& x) { return x * x; }},
      {"one call more", [](const Tensor& x) { return x + x + x; }},
      {"one call less", [](const Tensor& x) { return x; }},
  };
}

TEST_P(Templates, WhatDiffersRunsAsItIsAndTheLoopGoesOn) {
  for (const Difference& difference : differences()) {
    SCOPED_TRACE(difference.what);
    const auto program = [&](Client&) {
      Values values;
      Tensor y = full({7}, 1.0, sharded());
      const Tensor half = full({7}, 0.5, sharded());
      const auto turn = [&](bool differs) {
        const Tensor x = y * half;
        const Tensor z = differs ? difference.call(x) : x + x;
        y = z - half;
        values.push_back(y.to_host().to_vector<float>());
      };
      for (int i = 0; i < 5; ++i) turn(false);
      turn(true);
      for (int i = 0; i < 3; ++i) turn(false);
      return values;
    };
    const Outcome off = outcome_of(GetParam(), false, program);
    const Outcome on = outcome_of(GetParam(), true, program);
    EXPECT_EQ(on.values, off.values);
    // The fourth and fifth turn, and two after the other one, of four operators each.
    EXPECT_GE(on.stats.template_operators, 4 * 4) << "the loop isn't taken up again";
    EXPECT_GE(on.stats.template_breaks, 1);
  }
}

TEST_P(Templates, NumbersThatBeginToChangeAreTaken) {
  const auto program = [](Client& client) {
    Values values;
    Tensor y = full({5}, 0.0, sharded());
    for (int i = 0; i < 12; ++i) {
      y = y + full({5}, i < 6 ? 1.0 : i, sharded()) * full({5}, i < 9 ? 2.0 : 0.5 * i, sharded());
      if (i % 2 == 0) client.flush();
      values.push_back(y.to_host().to_vector<float>());
    }
    return values;
  };
  EXPECT_EQ(outcome_of(GetParam(), true, program).values, outcome_of(GetParam(), false, program).values);
}

TEST_P(Templates, AFailureInAReplayNamesItsLine) {
  // No device has room for it.
  const auto failing = [](Client& client) {
    std::string text;
    const Tensor small = full({3}, 1.0, sharded());
    for (int i = 0; i < 5; ++i) {
      const Tensor huge = full({int64_t{1} << 56}, 1.0, sharded());
      const Tensor sum = huge + huge;
      try {
        (void)(small + small).to_host();
        client.synchronize();
      } catch (const RuntimeFault& fault) {
        text = fault.what();
      }
    }
    EXPECT_NE(text.find("templates_test.cc:"), std::string::npos) << text;
    EXPECT_NE(text.find("[full] failed on node"), std::string::npos) << text;
    EXPECT_EQ((small + small).to_host().to_vector<float>(), std::vector<float>(3, 2));
    return Values{};
  };
  EXPECT_GT(outcome_of(GetParam(), true, failing).stats.template_operators, 0);
}

TEST_P(Templates, MemoryComesBack) {
  const auto bytes_after = [](bool templates) {
    int64_t bytes = 0;
    outcome_of("1", templates, [&](Client& client) {
      Tensor y = full({3000}, 1.0, sharded());
      const Tensor b = full({3000}, 0.5, sharded());
      for (int i = 0; i < 2000; ++i) y = (y + b) * b;
      client.synchronize();
      for (int64_t device : client.stats().bytes_in_use_per_device) bytes += device;
      return Values{};
    });
    return bytes;
  };
  EXPECT_EQ(bytes_after(true), bytes_after(false));
}

TEST_P(Templates, TrainingGivesTheSameBits) {
  if (!DTORCH_WITH_KERNELS) GTEST_SKIP() << "this build has no kernels";
  const auto program = [](Client& client) {
    client.manual_seed(3);
    const DeviceMesh mesh = init_device_mesh("cpu", {3}, {"dp"});
    nn::Llama model({.dim = 32, .layers = 2, .heads = 4, .vocab = 64, .ffn = 64}, {.mesh = mesh});
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
    Values losses;
    for (int step = 0; step < 8; ++step) {
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < 6 * 8; ++i) tokens.push_back((i * 31 + step * 7) % 64);
      const Tensor batch = from_host(HostTensor::of<int64_t>({6, 8}, tokens), {.mesh = mesh, .placements = {Shard(0)}});
      const Tensor loss = model.loss(batch, batch);
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      losses.push_back({loss.item<float>()});
    }
    for (const nn::Parameter& parameter : model.parameters())
      losses.push_back(parameter.value().to_host().to_vector<float>());
    return losses;
  };
  const Outcome on = outcome_of(GetParam(), true, program);
  EXPECT_EQ(on.values, outcome_of(GetParam(), false, program).values);
  EXPECT_GT(on.stats.template_operators, on.stats.operators / 3);
}

TEST_P(Templates, TwoGraphsReplayAtOnce) {
  const int code = run_with({"--devices", "3", "--nodes", GetParam()}, [](Client& client) {
    const auto chain = [](const Graph& graph, float start) {
      GraphScope scope(graph);
      const Tensor one = full({5}, 1.0, sharded());
      Tensor y = full({5}, start, sharded());
      for (int i = 0; i < 4000; ++i) {
        y = y + one;
        if (i % 100 == 99) y = y.redistribute({Replicate()}).redistribute({Shard(0)});
      }
      EXPECT_EQ(y.to_host().to_vector<float>(), std::vector<float>(5, start + 4000));
    };
    const Graph other = client.new_graph();
    std::thread second([&] { chain(other, 7); });
    chain(client.graph(), 0);
    second.join();
    const ClientStats stats = client.stats();
    EXPECT_GT(stats.template_operators, 5000);
  });
  EXPECT_EQ(code, 0);
}

INSTANTIATE_TEST_SUITE_P(Nodes, Templates, testing::Values("1", "3"),
                         [](const auto& info) { return "Nodes" + std::string(info.param); });

}  // namespace
}  // namespace dtorch
