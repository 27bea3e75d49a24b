// What fusion of elementwise operators is worth: chains against a bare LibTorch C++ loop of the same operators in the
// same process. Interleaved pairs, median of the ratios. `--passes=-fusion` gives the figures without. One JSON object
// a line; under mpirun -np 2 / 3 the names end in .np2 / .np3.
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/bare_loop.h"
#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;
using namespace dtorch::bench;

// `chains` chains of `length` adds, each a subgraph of its own that goes on from the one before.
void bench_chain(const std::string& name, Client& client, int64_t elements, int length, int chains) {
  const Tensor b = full({elements}, 0.5);
  const at::Tensor bare_b = at::ones({elements}).mul(0.5);
  compare(
      name, length * chains,
      [&] {
        Tensor y = zeros({elements});
        for (int chain = 0; chain < chains; ++chain) {
          for (int i = 0; i < length; ++i) y = y + b;
          client.flush();
        }
        return static_cast<double>(y.to_host().element<float>(elements - 1));
      },
      [&] {
        c10::InferenceMode guard;
        at::Tensor y = at::ones({elements}).mul(0);
        for (int i = 0; i < length * chains; ++i) y = at::add(y, bare_b);
        return static_cast<double>(y[elements - 1].item<float>());
      });
}

// Tensors that don't fit into a cache: what is between the operators needn't go to memory.
void bench_large(const std::string& name, Client& client, int64_t elements, int rounds) {
  const Tensor b = full({elements}, 0.5);
  const at::Tensor bare_b = at::ones({elements}).mul(0.5);
  compare(
      name, 8 * rounds,
      [&] {
        Tensor y = zeros({elements});
        for (int round = 0; round < rounds; ++round) {
          for (int i = 0; i < 4; ++i) y = (y + b) * b;
          client.flush();
        }
        return static_cast<double>(y.to_host().element<float>(elements - 1));
      },
      [&] {
        c10::InferenceMode guard;
        at::Tensor y = at::ones({elements}).mul(0);
        for (int i = 0; i < 4 * rounds; ++i) y = at::mul(at::add(y, bare_b), bare_b);
        return static_cast<double>(y[elements - 1].item<float>());
      });
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  return dtorch::run(argc, argv, [](Client& client) {
    NoGrad no_grad;
    bench_chain("dispatch.fused_chain_100", client, 1024, 100, 1000);
    bench_chain("fusion.chain_8", client, 1024, 8, 10000);
    bench_large("fusion.large_8", client, int64_t{1} << 22, 4);
  });
}
