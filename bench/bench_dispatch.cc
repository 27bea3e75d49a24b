// The whole pipeline against a bare LibTorch C++ loop in the same process: y = y + b, dependent operators, the last
// value read and compared. Interleaved pairs, median of the ratios. Under mpirun -np 2 / 3 the names end in .np2 / .np3
// (the same bare loop is the baseline). Also the latency of add + item, at once and after idling, and bytes and
// messages an operator. With DTORCH_TEMPLATES=off only dispatch.add_1.loose: every operator is sent by itself. One JSON
// object a line.
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "bench/bare_loop.h"
#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;
using namespace dtorch::bench;

void bench_add(const std::string& name, int64_t elements, int count) {
  Tensor b = full({elements}, 0.5);
  at::Tensor bare_b = at::ones({elements}).mul(0.5);
  compare(
      name, count,
      [&] {
        Tensor y = zeros({elements});
        for (int i = 0; i < count; ++i) y = y + b;
        return static_cast<double>(y.to_host().element<float>(0));
      },
      [&] {
        c10::InferenceMode guard;
        at::Tensor y = at::ones({elements}).mul(0);
        for (int i = 0; i < count; ++i) y = at::add(y, bare_b);
        return static_cast<double>(y[0].item<float>());
      });
}

// One operand is cast at every call.
void bench_generic(const std::string& name, int count) {
  Tensor b = full({1}, 2, {.dtype = kInt32});
  at::Tensor bare_b = at::ones({1}).mul(2).to(at::kInt);
  compare(
      name, count,
      [&] {
        Tensor y = zeros({1});
        for (int i = 0; i < count; ++i) y = y + b;
        return static_cast<double>(y.to_host().element<float>(0));
      },
      [&] {
        c10::InferenceMode guard;
        at::Tensor y = at::ones({1}).mul(0);
        for (int i = 0; i < count; ++i) y = at::add(y, bare_b);
        return static_cast<double>(y[0].item<float>());
      });
}

void bench_matmul(const std::string& name, int64_t size, int count) {
  const float entry = 1.0f / static_cast<float>(size);
  Tensor b = full({size, size}, entry);
  at::Tensor bare_b = at::ones({size, size}).mul(entry);
  compare(
      name, count,
      [&] {
        Tensor y = ones({size, size});
        for (int i = 0; i < count; ++i) y = matmul(y, b);
        return static_cast<double>(y.to_host().element<float>(0));
      },
      [&] {
        c10::InferenceMode guard;
        at::Tensor y = at::ones({size, size});
        for (int i = 0; i < count; ++i) y = at::matmul(y, bare_b);
        return static_cast<double>(y[0][0].item<float>());
      });
}

void bench_read() {
  constexpr int kReads = 2000;
  Tensor b = ones({1}), y = zeros({1});
  std::vector<double> us;
  for (int i = 0; i < kReads; ++i) {
    const double s = seconds([&] {
      y = y + b;
      (void)y.item<float>();
    });
    if (i >= 100) us.push_back(s * 1e6);
  }
  print("latency.read", median(us), "us");
}

// The first read after five seconds in which nothing happens: threads sleep by then.
void bench_read_after_idling() {
  constexpr int kReads = 3;
  Tensor b = ones({1}), y = zeros({1});
  std::vector<double> us;
  for (int i = 0; i < kReads; ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    us.push_back(1e6 * seconds([&] {
                   y = y + b;
                   (void)y.item<float>();
                 }));
  }
  print("latency.read.idle", *std::ranges::max_element(us), "us");
}

void bench_volume(Client& client) {
  constexpr int kCount = 20000;
  Tensor b = ones({1}), y = zeros({1});
  client.synchronize();
  const RuntimeStats before = client.stats();
  for (int i = 0; i < kCount; ++i) y = y + b;
  client.synchronize();
  const RuntimeStats after = client.stats();
  print("dispatch.bytes_per_operator", static_cast<double>(after.control_bytes - before.control_bytes) / kCount,
        "bytes");
  print("dispatch.messages_per_operator",
        static_cast<double>(after.control_messages - before.control_messages) / kCount, "messages");
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  // What is measured is a call, so none may be saved; --passes says otherwise. Fusion has a benchmark of its own.
  if (setenv("DTORCH_PASSES", "liveness", 0) != 0) return 1;
  return dtorch::run(argc, argv, [](Client& client) {
    NoGrad no_grad;
    const char* templates = std::getenv("DTORCH_TEMPLATES");
    if (templates != nullptr && std::string(templates) == "off") return bench_add("dispatch.add_1.loose", 1, 100000);
    bench_add("dispatch.add_1", 1, 100000);
    bench_add("dispatch.add_1024", 1024, 100000);
    bench_generic("dispatch.generic_1", 100000);
    bench_matmul("dispatch.matmul_16", 16, 100000);
    bench_read();
    bench_read_after_idling();
    bench_volume(client);
  });
}
