// What --recover costs while nothing is lost: steps of a training (a small Llama, AdamW, ZeRO stage 3, so that no other
// node has a node's state, on 2 nodes of 2 devices) with the log and snapshots every 10 steps against the same without.
// Two jobs in processes of their own take turns; 200 steps each. Time, and processor time, which says more on a machine
// that others use too.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/pairs.h"
#include "dtorch/dtorch.h"
#include "dtorch/nn.h"

namespace {

using namespace dtorch;

constexpr int kSlices = 20, kStepsPerSlice = 10;  // the former by an argument on a busy machine
constexpr int64_t kLength = 64, kBatch = 4, kVocab = 512;

// Reads numbers of steps, answers with the seconds that they took, and the seconds of processors.
void serve(Client& client) {
  const DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()}, {"dp"});
  const nn::Llama model({.dim = 64, .layers = 3, .heads = 4, .vocab = kVocab, .ffn = 192},
                        {.mesh = mesh, .zero = "dp"});
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  int64_t done = 0;
  const auto batch = [&](int64_t shift) {
    std::vector<int64_t> tokens;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t t = shift; t < kLength + shift; ++t) tokens.push_back((b * 7919 + t * 31 + done * 101) % kVocab);
    }
    return from_host(HostTensor::of<int64_t>({kBatch, kLength}, tokens), {.mesh = mesh, .placements = {Shard(0)}});
  };
  for (int count = 0; std::cin >> count;) {
    const std::clock_t began = std::clock();
    const double seconds = bench::seconds([&] {
      for (int i = 0; i < count; ++i, ++done) {
        const Tensor loss = model.loss(batch(0), batch(1));
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        (void)loss.item<float>();
      }
    });
    std::cout << seconds << ' ' << static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC << std::endl;
  }
}

struct Cost {
  double seconds = 0, processor_s = 0;
};

// This program again, serving.
class Job {
 public:
  Job(const char* program, const char* recover) {
    std::array<int, 2> to{}, from{};
    if (pipe(to.data()) != 0 || pipe(from.data()) != 0) throw std::runtime_error("no pipe");
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (int fd : {to[0], to[1], from[0], from[1]}) close(fd);
      execl(program, program, "--serve", "--nodes", "2", "--devices", "4", "--recover", recover, "--snapshot-every",
            "10", static_cast<char*>(nullptr));
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    out_ = fdopen(to[1], "w");
    in_ = fdopen(from[0], "r");
  }
  ~Job() {
    std::fclose(out_);
    waitpid(child_, nullptr, 0);
    std::fclose(in_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  Cost cost_of(int steps) {
    Cost cost;
    std::fprintf(out_, "%d\n", steps);
    std::fflush(out_);
    if (std::fscanf(in_, "%lf %lf", &cost.seconds, &cost.processor_s) != 2)
      throw std::runtime_error("the job has ended");
    return cost;
  }

 private:
  pid_t child_ = -1;
  FILE *out_ = nullptr, *in_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--serve") return run(argc, argv, [](Client& client) { serve(client); });
  const int num_slices = argc > 1 ? std::max(1, std::atoi(argv[1])) : kSlices;
  Job without("/proc/self/exe", "off"), with("/proc/self/exe", "on");
  for (Job* job : {&without, &with}) job->cost_of(2 * kStepsPerSlice);  // templates, first snapshots
  std::vector<double> ratios, seconds;
  double processor_s = 0, processor_s_with = 0;
  for (int slice = 0; slice < num_slices; ++slice) {
    const bool first = slice % 2 == 0;
    const Cost a = first ? without.cost_of(kStepsPerSlice) : Cost();
    const Cost b = with.cost_of(kStepsPerSlice);
    const Cost plain = first ? a : without.cost_of(kStepsPerSlice);
    seconds.push_back(plain.seconds);
    ratios.push_back(b.seconds / plain.seconds);
    processor_s += plain.processor_s;
    processor_s_with += b.processor_s;
  }
  const auto print = [](const char* name, double value, const char* unit) {
    std::cout << nlohmann::json{{"name", name}, {"value", value}, {"unit", unit}}.dump() << std::endl;
  };
  print("recovery.step_ratio", bench::median(ratios), "ratio");
  print("recovery.processor_ratio", processor_s_with / processor_s, "ratio");
  print("recovery.step_s", bench::median(seconds) / kStepsPerSlice, "s");
  return 0;
}
