// Two user threads that issue collectives on the same devices, in opposite orders: what one waits for never waits for
// the other. DTORCH_COLLECTIVE_ROUNDS: rounds of each thread (1,000 unless set; 30,000 take about a minute).
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/cases/case_support.h"

namespace dtorch::test {
namespace {

using CollectiveCase = KernelTest;

constexpr int kRoundsBetweenReads = 16;

int num_rounds() {
  const char* text = std::getenv("DTORCH_COLLECTIVE_ROUNDS");
  return text == nullptr ? 1000 : std::stoi(text);
}

// An exchange, an all-reduce, a reduce-scatter and a gather of x [8, 8] over Shard(0), and nothing that orders them.
// backwards: the other way round.
Tensor sum_of_collectives(const Tensor& x, bool backwards) {
  const auto exchanged = [&] { return sum(x.redistribute({Shard(1)})).reduced(); };
  const auto reduced = [&] { return sum(sum(x, {0}).redistribute({Replicate()})); };
  const auto scattered = [&] { return sum(sum(x, {0}).redistribute({Shard(0)})).reduced(); };
  const auto gathered = [&] { return sum(x.redistribute({Replicate()})); };
  if (backwards) {
    const Tensor first = gathered(), second = scattered();
    return first + second + reduced() + exchanged();
  }
  const Tensor first = exchanged(), second = reduced();
  return first + second + scattered() + gathered();
}

TEST_F(CollectiveCase, TwoThreadsOnTheSameDevicesDoNotWaitForEachOther) {
  const DeviceMesh mesh = cpu_mesh({4});
  const int rounds = num_rounds();
  std::vector<std::string> problems(2);
  std::vector<std::thread> threads;
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&, number, graph = client().new_graph()] {
      const GraphScope scope(graph);
      const NoGrad no_grad;
      const double value = number + 1;
      const Tensor x = full({8, 8}, value, {.mesh = mesh, .placements = {Shard(0)}});
      for (int round = 1; round <= rounds && problems[number].empty(); ++round) {
        const Tensor total = sum_of_collectives(x, number == 1);
        if (round % kRoundsBetweenReads != 0 && round != rounds) continue;
        const auto got = static_cast<double>(total.item<float>());
        if (got != 4 * 64 * value) problems[number] = "round " + std::to_string(round) + ": " + std::to_string(got);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(problems, std::vector<std::string>(2));
}

}  // namespace
}  // namespace dtorch::test
