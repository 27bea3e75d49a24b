// Training of a small Llama, AdamW, data parallel over the job's devices: tokens a second. train_vs_torch.sh compares
// it with PyTorch:
//   bench_train --devices 2 --serve WEIGHTS [--zero]
// writes the weights it starts from, says "ready", and for every line N on standard input trains N steps and answers
// with seconds, seconds of all its threads on a core, and the last loss. --zero: ZeRO stage 3. For memory_vs_torch.py
//   bench_train --devices 1 --peak
// prints the largest number of bytes in tensors that a device has held, from the model's creation on, over three steps.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"
#include "dtorch/nn.h"

namespace {

using namespace dtorch;

constexpr int64_t kLength = 256, kBatch = 8, kVocab = 4096;

class Trainer {
 public:
  Trainer(Client& client, bool zero)
      : client_(client),
        mesh_(init_device_mesh("cpu", {client.num_devices()}, {"dp"})),
        model_({.dim = 256, .layers = 4, .heads = 4, .vocab = kVocab, .ffn = 768},
               {.mesh = mesh_, .zero = zero ? "dp" : ""}),
        optimizer_(model_.parameters(), {.lr = 1e-3, .weight_decay = 0.01}) {}

  // Float32 values of all parameters one after the other, in the order of parameters().
  void write_weights(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    for (const nn::Parameter& parameter : model_.parameters()) {
      const HostTensor value = parameter.value().to_host();
      file.write(reinterpret_cast<const char*>(value.bytes()), value.num_bytes());
    }
    if (!file.flush()) throw UserError("the weights couldn't be written to " + path);
  }

  struct Result {
    double seconds = 0, cpu_seconds = 0;
    float loss = 0;
  };
  Result steps(int64_t count) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    Tensor loss;
    for (int64_t i = 0; i < count; ++i, ++done_) {
      loss = model_.loss(batch(0), batch(1));
      loss.backward();
      optimizer_.step();
      optimizer_.zero_grad();
    }
    const float last = loss.item<float>();
    client_.synchronize();
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
            static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC, last};
  }

 private:
  // Tokens, or those one further on.
  Tensor batch(int64_t shift) const {
    std::vector<int64_t> tokens;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t t = shift; t < kLength + shift; ++t)
        tokens.push_back((b * 7919 + t * 31 + t * t * 7 + done_ * 101) % kVocab);
    }
    return from_host(HostTensor::of<int64_t>({kBatch, kLength}, tokens), {.mesh = mesh_, .placements = {Shard(0)}});
  }

  Client& client_;
  DeviceMesh mesh_;
  nn::Llama model_;
  optim::AdamW optimizer_;
  int64_t done_ = 0;
};

void serve(Trainer& trainer, const std::string& weights) {
  trainer.write_weights(weights);
  std::cout << "ready" << std::endl;
  for (int64_t count = 0; std::cin >> count;) {
    const Trainer::Result result = trainer.steps(count);
    std::cout << result.seconds << ' ' << result.cpu_seconds << ' ' << result.loss << std::endl;
  }
}

void print_peak(Client& client, Trainer& trainer) {
  trainer.steps(3);
  const std::vector<int64_t> peaks = client.stats().peak_bytes_per_node;
  std::cout
      << nlohmann::json{{"name", "memory.peak_bytes"}, {"value", std::ranges::max(peaks)}, {"unit", "bytes"}}.dump()
      << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  std::string weights;
  bool zero = false, peak = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--serve" && i + 1 < argc) weights = argv[i + 1];
    zero |= std::string(argv[i]) == "--zero";
    peak |= std::string(argv[i]) == "--peak";
  }
  return dtorch::run(argc, argv, [&](Client& client) {
    client.manual_seed(1);
    Trainer trainer(client, zero);
    if (!weights.empty()) return serve(trainer, weights);
    if (peak) return print_peak(client, trainer);
    trainer.steps(2);
    const double seconds = trainer.steps(5).seconds;
    std::cout << nlohmann::json{{"name", "train.tokens_per_s"},
                                {"value", 5 * kBatch * kLength / seconds},
                                {"unit", "tokens/s"}}
                     .dump()
              << std::endl;
  });
}
