// What this job can do: operators a second through the whole pipeline, matrix products, redistributions. For
// comparisons with other programs see bench/.
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/dtorch_app/commands.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  int64_t repeats = 5;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app bench [options]", "Measures this job; one JSON object a line: name, value, unit.");
  command.options().add_options()("repeats",
                                  po::value(&options.repeats)->default_value(options.repeats)->value_name("N"),
                                  "repetitions; the median is printed");
  return command;
}

// Of `work`, whose result is wanted: what nobody wants isn't computed. One calculation twice would be done once.
double median_seconds(Client& client, int64_t repeats, const std::function<Tensor()>& work) {
  std::vector<double> seconds;
  for (int64_t i = 0; i <= repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Tensor result = work();
    client.synchronize();
    const auto end = std::chrono::steady_clock::now();
    if (i > 0) seconds.push_back(std::chrono::duration<double>(end - start).count());  // the first is a warm-up
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

void print(const std::string& name, double value, const std::string& unit) {
  std::cout << nlohmann::json{{"name", name}, {"value", value}, {"unit", unit}}.dump() << '\n' << std::flush;
}

}  // namespace

std::string help_bench() {
  Options options;
  return command_line(options).help();
}

int run_bench(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  if (options.repeats < 1) throw UserError("--repeats must be positive");
  const DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()}, {"all"});
  NoGrad no_grad;

  constexpr int64_t kAdds = 20000;
  Tensor one = ones({1}, {.mesh = mesh});
  const double add_s = median_seconds(client, options.repeats, [&] {
    Tensor y = one;
    for (int64_t i = 0; i < kAdds; ++i) y = y + one;
    return y;
  });
  print("add.operators_per_s", kAdds / add_s, "operators/s");

  constexpr int64_t kSize = 512;
  constexpr int64_t kProducts = 8;
  Tensor a = rand({kSize * client.num_devices(), kSize}, {.mesh = mesh, .placements = {Shard(0)}}),
         b = rand({kSize, kSize}, {.mesh = mesh});
  const double matmul_s = median_seconds(client, options.repeats, [&] {
    Tensor y = a;
    for (int64_t i = 0; i < kProducts; ++i) y = matmul(y, b);
    return y;
  });
  print("matmul_512.gflop_per_s",
        2.0 * kSize * kSize * kSize * static_cast<double>(kProducts * client.num_devices()) / matmul_s * 1e-9,
        "GFLOP/s");

  if (client.num_devices() > 1) {
    constexpr int64_t kElements = 1 << 22;  // 16 MiB
    Tensor pending = ones({kElements}, {.mesh = mesh, .placements = {Partial()}});
    Tensor split = ones({kElements}, {.mesh = mesh, .placements = {Shard(0)}});
    const double reduce_s =
        median_seconds(client, options.repeats, [&] { return pending.redistribute({Replicate()}); });
    print("all_reduce_16MiB.bytes_per_s", kElements * 4 / reduce_s, "bytes/s");
    const double gather_s = median_seconds(client, options.repeats, [&] { return split.redistribute({Replicate()}); });
    print("all_gather_16MiB.bytes_per_s", kElements * 4 / gather_s, "bytes/s");
  }
  return 0;
}

}  // namespace dtorch::app
