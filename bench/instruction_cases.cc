// What scripts/instructions.py counts under callgrind: calls through the whole pipeline in one process. Each case is a
// function of its own, so that its instructions can be told apart.
//   instruction_cases repeated | fused | first_seen
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;

// Fewer cells than a Graph's ring has, so that the client never waits.
constexpr int kCalls = 4000;

[[gnu::always_inline]] inline void record_chain(Tensor y, const Tensor& b) {
  for (int i = 0; i < kCalls; ++i) y = y + b;
}

[[gnu::noinline]] void record_without_tape(const Tensor& x, const Tensor& b) {
  NoGrad no_grad;
  record_chain(x, b);
}

[[gnu::noinline]] void record_with_tape(const Tensor& x, const Tensor& b) { record_chain(x, b); }

// The same, not counted: what is counted is the steady state. Twice, since compilers make one function of equal ones.
[[gnu::noinline]] void warm_up(const Tensor& x, const Tensor& b) {
  record_chain(x, b);
  record_chain(x, b);
}

// Every call is one that the job has never seen: 500 shapes and twice as many operators.
[[gnu::noinline]] void record_first_seen(std::vector<Tensor>& results) {
  NoGrad no_grad;
  for (int64_t i = 0; i < kCalls / 8; ++i) {
    const Tensor x = zeros({i % 25 + 1, i / 25 + 1});
    results.push_back(x + x);  // kept, so that the call isn't dropped
  }
}

void repeated(Client& client) {
  const Tensor b = ones({16}), y = zeros({16}), x = zeros({16}, {.requires_grad = true});
  for (const Tensor& start : {y, x}) {
    warm_up(start, b);
    client.synchronize();
  }
  for (int round = 0; round < 3; ++round) {
    record_without_tape(y, b);
    client.synchronize();
    record_with_tape(x, b);
    client.synchronize();
  }
}

// Chains of fused calls, again and again, so that what is made once hardly counts.
void fused(Client& client) {
  const Tensor b = ones({16}), y = zeros({16});
  for (int round = 0; round < 10; ++round) {
    record_without_tape(y, b);
    client.synchronize();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  // Elsewhere a call's own instructions are wanted.
  const char* passes = name == "fused" ? "liveness,fusion" : "repeated_operators,dead_operators,liveness";
  if (setenv("DTORCH_PASSES", passes, 0) != 0) return 1;
  return dtorch::run(argc, argv, [&](Client& client) {
    if (name == "repeated") {
      repeated(client);
    } else if (name == "fused") {
      fused(client);
    } else if (name == "first_seen") {
      std::vector<Tensor> results;
      record_first_seen(results);
      client.synchronize();
    } else {
      throw UserError("instruction_cases: a case is 'repeated', 'fused' or 'first_seen', got '" + name + "'");
    }
  });
}
