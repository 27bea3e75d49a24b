// What a loop costs once it is a template: a body of 1,000 operators without a boundary, repeated. Bytes and messages
// that rank 0 sends a turn, time of the controller's threads on a core a turn (on one node and on 512 in this process,
// and on as many simulated ones), and how much of a Llama's training step is replayed. One JSON object a line.
//
// The controller is timed while a long operator keeps the device busy, with little credit: records gather in the ring,
// and its thread takes them without waiting for the client.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dtorch/dtorch.h"
#include "dtorch/nn.h"

namespace {

using namespace dtorch;

constexpr int kBody = 1000;
constexpr int kTurns = 14;  // in a burst: what fits into the ring
constexpr int kBursts = 8;

void print(const std::string& name, double value, const std::string& unit) {
  std::cout << nlohmann::json{{"name", name}, {"value", value}, {"unit", unit}}.dump() << '\n' << std::flush;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Nanoseconds that this process's threads of a name have been on a core.
int64_t thread_ns(const std::vector<std::string>& names) {
  int64_t total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    int64_t ns = 0;
    std::ifstream(task.path() / "comm") >> name;
    std::ifstream(task.path() / "schedstat") >> ns;
    if (std::find(names.begin(), names.end(), name) != names.end()) total += ns;
  }
  return total;
}

// y -> y by operators in an order without a period of its own.
class Loop {
 public:
  void turn() {
    uint32_t random = 1;
    for (int i = 0; i < kBody; ++i) {
      random = random * 1664525 + 1013904223;
      switch (random >> 30) {
        case 0:
          y_ = y_ + zero_;
          break;
        case 1:
          y_ = y_ * one_;
          break;
        case 2:
          y_ = y_ - zero_;
          break;
        default:
          y_ = zero_ + y_;
          break;
      }
    }
  }
  void check() const {
    if (y_.item<float>() != 3) throw RuntimeFault("the loop gives " + std::to_string(y_.item<float>()));
  }

 private:
  Tensor y_ = full({1}, 3.0), zero_ = full({1}, 0.0), one_ = full({1}, 1.0);
};

struct LoopCost {
  double bytes = 0, messages = 0, controller_us = 0;  // a turn
  double hit_rate = 0;
};

LoopCost cost_of_loop(Client& client, bool computes) {
  NoGrad no_grad;
  Loop loop;
  Tensor busy = full({2000, 2000}, 0.001);
  ClientStats before, after;
  int64_t ns = 0;
  for (int burst = -3; burst < kBursts; ++burst) {
    if (burst == 0) {
      client.synchronize();
      before = client.stats();
      ns = thread_ns({"dtorch-graph", "dtorch-inbox"});
    }
    (void)matmul(busy, busy);
    client.flush();
    for (int turn = 0; turn < kTurns; ++turn) loop.turn();
    client.flush();
  }
  client.synchronize();
  after = client.stats();
  ns = thread_ns({"dtorch-graph", "dtorch-inbox"}) - ns;
  if (computes) loop.check();
  constexpr double kCount = kBursts * kTurns;
  return {.bytes = static_cast<double>(after.control_bytes - before.control_bytes) / kCount,
          .messages = static_cast<double>(after.control_messages - before.control_messages) / kCount,
          .controller_us = static_cast<double>(ns) / kCount * 1e-3,
          .hit_rate = static_cast<double>(after.template_operators - before.template_operators) /
                      static_cast<double>(after.operators - before.operators)};
}

void bench_loop(Client& client, const std::string& suffix) {
  const LoopCost cost = cost_of_loop(client, true);
  print("template.wire_bytes_per_iteration" + suffix, cost.bytes, "bytes");
  print("template.messages_per_iteration" + suffix, cost.messages, "messages");
  print("template.controller_us_per_iteration" + suffix, cost.controller_us, "us");
  print("template.loop_hit_rate" + suffix, cost.hit_rate, "of operators");
}

void bench_llama(Client& client) {
  const DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()}, {"dp"});
  nn::Llama model({.dim = 64, .layers = 4, .heads = 4, .vocab = 128, .ffn = 128}, {.mesh = mesh});
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  constexpr int64_t kLength = 16, kBatch = 4;
  ClientStats before;
  constexpr int kSteps = 12;
  for (int step = 0; step < kSteps; ++step) {
    if (step == 2) before = client.stats();  // two have ended with a read
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < kLength * kBatch; ++i) tokens.push_back((i * 31 + step * 7) % 128);
    const Tensor batch =
        from_host(HostTensor::of<int64_t>({kBatch, kLength}, tokens), {.mesh = mesh, .placements = {Shard(0)}});
    const Tensor loss = model.loss(batch, batch);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    (void)loss.item<float>();
  }
  client.synchronize();
  const ClientStats after = client.stats();
  print("template.hit_rate",
        static_cast<double>(after.template_operators - before.template_operators) /
            static_cast<double>(after.operators - before.operators),
        "of operators");
  print("template.operators_per_step", static_cast<double>(after.operators - before.operators) / (kSteps - 2),
        "operators");
  print("template.bytes_per_step", static_cast<double>(after.control_bytes - before.control_bytes) / (kSteps - 2),
        "bytes");
}

int in_job(const std::vector<std::string>& options, const std::function<void(Client&)>& program) {
  std::vector<std::string> words = {"bench_templates"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return dtorch::run(static_cast<int>(words.size()), pointers.data(), program);
}

// On nodes that compute nothing, so that none of them takes the controller's cores.
int bench_simulated() {
  constexpr int kRepeats = 7;
  std::vector<double> one, many, ratios;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (auto [nodes, all] : {std::pair{"1", &one}, std::pair{"512", &many}}) {
      const int code = in_job({"--device", "null", "--nodes", nodes, "--inflight-operators", "4000"},
                              [&](Client& client) { all->push_back(cost_of_loop(client, false).controller_us); });
      if (code != 0) return code;
    }
    ratios.push_back(many.back() / one.back());
  }
  print("template.controller_us_per_iteration.simulated1", median(one), "us");
  print("template.controller_us_per_iteration.simulated512", median(many), "us");
  print("template.controller_nodes_ratio", median(ratios), "512 simulated nodes to 1");
  return 0;
}

}  // namespace

int main() {
  const std::string credit = "4000";
  int code = in_job({"--inflight-operators", credit}, [](Client& client) { bench_loop(client, ""); });
  if (code == 0) {
    code = in_job({"--inflight-operators", credit, "--nodes", "512"},
                  [](Client& client) { bench_loop(client, ".nodes512"); });
  }
  if (code == 0) code = bench_simulated();
  if (code == 0) code = in_job({"--devices", "2"}, bench_llama);
  return code;
}
