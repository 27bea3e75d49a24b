// What an operator costs the client and the controller when nobody has seen it before, by the number of devices: on
// simulated devices, which compute nothing. CPU time of both, so that it doesn't matter how many cores there are. One
// JSON object a line.
//   bench_scale                  the gates' figures
//   bench_scale DEVICES NODES    microseconds an operator on so many, for a profiler
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;

constexpr int kRounds = 400;  // of three operators
constexpr int kRepeats = 5;

// Runs `program` on devices that compute nothing.
void on_null_devices(int64_t devices, int64_t nodes, const std::function<void(Client&)>& program) {
  // Nobody reads what is computed: all of it is sent all the same.
  std::vector<std::string> words = {"bench_scale", "--device=null", "--devices=" + std::to_string(devices),
                                    "--nodes=" + std::to_string(nodes), "--passes=liveness"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (run(static_cast<int>(words.size()), pointers.data(), program) != 0) throw RuntimeFault("a job failed");
}

// Microseconds of client and controller an operator; every shape is new in this process.
double first_seen_us(int64_t devices, int64_t nodes) {
  static int64_t next_size = 1;
  double us = 0;
  on_null_devices(devices, nodes, [&](Client& client) {
    NoGrad no_grad;
    const DeviceMesh mesh = init_device_mesh("cpu", {devices});
    const int64_t before = client.stats().operators;
    client.start_profile();
    for (int round = 0; round < kRounds; ++round) {
      const Tensor x = full({8192, next_size++}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
      static_cast<void>((x + x).redistribute({Replicate()}));
    }
    const Profile profile = client.profile();
    const int64_t operators = client.stats().operators - before;
    // On one device nothing is redistributed.
    if (operators != (devices == 1 ? 2 : 3) * kRounds)
      throw RuntimeFault(std::to_string(operators) + " operators were sent");
    us = (profile.client_cpu_s + profile.controller_cpu_s) * 1e6 / static_cast<double>(operators);
  });
  return us;
}

void print(const std::string& name, double value, const std::string& unit) {
  std::cout << nlohmann::json{{"name", name}, {"value", value}, {"unit", unit}}.dump() << '\n' << std::flush;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3) {
    for (int repeat = 0; repeat < kRepeats; ++repeat)
      print("scale.first_seen_us", first_seen_us(std::stoll(argv[1]), std::stoll(argv[2])), "us/operator");
    return 0;
  }
  std::vector<double> one, ratios, node_ratios;
  for (int repeat = 0; repeat <= kRepeats; ++repeat) {
    const double on_one = first_seen_us(1, 1), on_8 = first_seen_us(8, 1), on_4096 = first_seen_us(4096, 1),
                 on_512_nodes = first_seen_us(4096, 512);
    if (repeat == 0) continue;  // warm-up
    one.push_back(on_one);
    ratios.push_back(on_4096 / on_8);
    node_ratios.push_back(on_512_nodes / on_4096);
  }
  print("scale.first_seen_us", median(one), "us/operator");
  print("scale.first_seen_ratio", median(ratios), "4096 devices to 8");
  print("scale.first_seen_nodes_ratio", median(node_ratios), "512 nodes to 1");
  return 0;
}
