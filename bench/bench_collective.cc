// Redistributions against MPI's own collective calls. Started by itself this program starts jobs under mpirun, one
// after the other: MPI's calls on 2 ranks, and DTorch's redistributions on 2 Sub-Controllers. One JSON object a line:
// collective.small_ratio.gather / .reduce: one of a chain of 1,000 dependent redistributions of 4 KiB (S -> R -> S, and
//   P -> R with R -> P, half of which are local) on 2 nodes of 2 devices, by a blocking MPI_Allreduce of 4 KiB;
// collective.large_ratio: MPI's best time for an all-reduce of 64 MiB by that of P -> R on 2 nodes of 1 device;
// collective.large_ratio.one_process: the same with both devices in one process.
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/pairs.h"
#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;
using namespace dtorch::bench;
using nlohmann::json;

constexpr int kChain = 1000, kSlices = 9, kLargeTimes = 7;
constexpr int64_t kSmall = 1024, kLarge = 16 << 20;  // elements of float32

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw std::runtime_error(std::string(what) + " failed");
}

double median_of(int times, const std::function<void()>& work) {
  std::vector<double> all;
  for (int i = 0; i <= times; ++i) {
    const double took = seconds(work);
    if (i > 0) all.push_back(took);  // the first one warms up
  }
  return median(all);
}

// MPI's own, on all ranks of the job.
int reference() {
  check(MPI_Init(nullptr, nullptr), "MPI_Init");
  int rank = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  std::vector<float> in(kLarge, 1), out(kLarge);
  const auto all_reduce = [&](int count) {
    check(MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  };
  const double small = median_of(kSlices, [&] {
    for (int i = 0; i < kChain; ++i) all_reduce(kSmall);
  });
  const double blocking = median_of(kLargeTimes, [&] { all_reduce(kLarge); });
  const double background = median_of(kLargeTimes, [&] {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(in.data(), out.data(), kLarge, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request),
          "MPI_Iallreduce");
    check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
  });
  check(MPI_Finalize(), "MPI_Finalize");
  if (rank == 0)
    std::cout << json{{"small_s", small / kChain}, {"large_s", std::min(blocking, background)}}.dump() << std::endl;
  return 0;
}

int job(Client& client) {
  const int64_t devices = client.num_devices();
  const DeviceMesh mesh = init_device_mesh("cpu", {devices});
  const auto on_mesh = [&](int64_t elements, const Placement& placement) {
    return full({elements}, 1, {.mesh = mesh, .placements = {Replicate()}}).redistribute({placement});
  };
  // Dependent, there and back.
  const auto chain = [&](int64_t elements, const Placement& from, int count) {
    Tensor x = on_mesh(elements, from);
    client.synchronize();
    return seconds([&] {
      for (int i = 0; i < count; i += 2) x = x.redistribute({Replicate()}).redistribute({from});
      client.synchronize();
    });
  };
  const auto median_chain = [&](const Placement& from) {
    std::vector<double> all;
    for (int i = 0; i <= kSlices + 2; ++i) {
      const double took = chain(kSmall, from, kChain) / kChain;
      if (i > 2) all.push_back(took);  // the first ones define templates
    }
    return median(all);
  };
  std::vector<double> large;
  const Tensor part = on_mesh(kLarge, Partial());
  client.synchronize();
  for (int i = 0; i <= kLargeTimes; ++i) {
    const double took = seconds([&] {
      const Tensor whole = part.redistribute({Replicate()});
      client.synchronize();
    });
    if (i > 0) large.push_back(took);
  }
  std::cout << json{{"gather_s", median_chain(Shard(0))},
                    {"reduce_s", median_chain(Partial())},
                    {"large_s", median(large)}}
                   .dump()
            << std::endl;
  return 0;
}

// The JSON line that the command prints.
json figures_of(const std::string& command) {
  FILE* out = popen(command.c_str(), "r");
  if (out == nullptr) throw std::runtime_error("can't start " + command);
  std::string line;
  std::array<char, 512> buffer{};
  while (fgets(buffer.data(), buffer.size(), out) != nullptr) {
    if (buffer[0] == '{') line = buffer.data();
  }
  if (pclose(out) != 0 || line.empty()) throw std::runtime_error("failed: " + command);
  return json::parse(line);
}

void print(const std::string& name, double value, double ours_s, double mpi_s) {
  std::cout << json{{"name", name}, {"value", value}, {"ours_us", ours_s * 1e6}, {"mpi_us", mpi_s * 1e6}}.dump() << '\n'
            << std::flush;
}

int start_jobs(const std::string& program) {
  const std::string mpirun = "mpirun --oversubscribe --bind-to none -np ";
  const json mpi = figures_of(mpirun + "2 " + program + " --reference");
  const json two_nodes = figures_of(mpirun + "3 " + program + " --job --devices 4");
  const json one_each = figures_of(mpirun + "3 " + program + " --job --devices 2");
  const json one_process = figures_of(program + " --job --devices 2");
  for (const char* kind : {"gather", "reduce"}) {
    const double ours = two_nodes[std::string(kind) + "_s"];
    print(std::string("collective.small_ratio.") + kind, ours / mpi["small_s"].get<double>(), ours, mpi["small_s"]);
  }
  const double best = mpi["large_s"];
  print("collective.large_ratio", best / one_each["large_s"].get<double>(), one_each["large_s"], best);
  print("collective.large_ratio.one_process", best / one_process["large_s"].get<double>(), one_process["large_s"],
        best);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  try {
    if (first == "--reference") return reference();
    if (first != "--job") return start_jobs(argv[0]);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return run(argc, argv, [](Client& client, int, char**) { return job(client); });
}
