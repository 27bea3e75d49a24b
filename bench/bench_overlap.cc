// Whether communication runs beside computation: steps in the order of a training's (what makes gradients, their
// reductions, an update) on 2 nodes, against the same steps without reductions and without computation. Operators
// only sleep and messages take a known time, so that the figures don't hang on the machine. Steps take turns; medians.
// overlap.step_ratio is a step by the longer of its two halves (at most 1.1); overlap.step_ratio.without the same
// without the pass early_reductions. One JSON object a line.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/doze.h"
#include "bench/pairs.h"
#include "dtorch/dtorch.h"
#include "runtime/comm/slow_transport.h"

namespace {

using namespace dtorch;
using namespace dtorch::bench;

constexpr int kGradients = 24, kWarmUp = 6;
constexpr std::chrono::microseconds kMessage{3000};

struct Step {
  bool computes = true, reduces = true;
  // parts: what gradients are without computation, each another value.
  double seconds(Client& client, const std::vector<Tensor>& parts, const Tensor& whole) const {
    return bench::seconds([&] {
      std::vector<Tensor> gradients = parts;
      for (size_t i = 0; computes && i < gradients.size(); ++i) gradients[i] = doze(gradients[i == 0 ? 0 : i - 1]);
      const std::vector<Tensor> kept = gradients;  // else what nobody uses wouldn't be computed
      for (Tensor& gradient : gradients) gradient = reduces ? gradient.redistribute({Replicate()}) : whole;
      Tensor update = whole;
      for (const Tensor& gradient : gradients) update = update + gradient;
      client.synchronize();
    });
  }
};

struct Medians {
  double step = 0, compute = 0, communication = 0;
};

Medians measure(Client& client, int steps) {
  const DeviceMesh mesh = init_device_mesh("cpu", {2});
  const Tensor whole = ones({1024}, {.mesh = mesh, .placements = {Replicate()}});
  std::vector<Tensor> parts;
  for (int i = 0; i < kGradients; ++i)
    parts.push_back(full({1024}, i, {.mesh = mesh, .placements = {Replicate()}}).redistribute({Partial()}));
  const Step kinds[] = {{true, true}, {true, false}, {false, true}};
  std::vector<double> times[3];
  for (int i = 0; i < kWarmUp + steps; ++i) {
    for (int kind = 0; kind < 3; ++kind) {
      const double took = kinds[kind].seconds(client, parts, whole);
      if (i >= kWarmUp) times[kind].push_back(took);
    }
  }
  return {median(times[0]), median(times[1]), median(times[2])};
}

void bench_with(const std::string& name, const std::string& passes, int steps) {
  std::vector<std::string> words = {"bench_overlap", "--nodes", "2", "--devices", "2"};
  if (!passes.empty()) words.insert(words.end(), {"--passes", passes});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Medians medians;
  const int code = run(static_cast<int>(words.size()), argv.data(), [&](Client& client, int, char**) {
    medians = measure(client, steps);
    return 0;
  });
  if (code != 0) throw std::runtime_error("a job ended with code " + std::to_string(code));
  std::cout << nlohmann::json{{"name", name},
                              {"value", medians.step / std::max(medians.compute, medians.communication)},
                              {"step_ms", medians.step * 1e3},
                              {"compute_ms", medians.compute * 1e3},
                              {"communication_ms", medians.communication * 1e3}}
                   .dump()
            << '\n'
            << std::flush;
}

}  // namespace

// [number of steps of each kind, 200]
int main(int argc, char** argv) {
  OperatorRegistry::global().add(doze_op);
  set_message_time(kMessage);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  bench_with("overlap.step_ratio", "", steps);
  bench_with("overlap.step_ratio.without", "-early_reductions,-redundant_redistributes,-bucketing", steps);
  return 0;
}
