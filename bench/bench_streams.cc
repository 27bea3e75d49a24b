// What a second compute stream is worth: two chains that don't depend on each other, on one device, of an operator that
// only sleeps, so that the figure doesn't hang on the machine's cores; and what handing calls over costs: a chain of
// small additions. Jobs in this process, one with one stream, one with two. One JSON object a line:
// streams.two_chains (at most 0.65) and streams.small_chain are the time with two streams by that with one.
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/doze.h"
#include "bench/pairs.h"
#include "dtorch/dtorch.h"

namespace {

using namespace dtorch;
using namespace dtorch::bench;

constexpr int kLength = 20, kAdditions = 4000;

struct Times {
  double two_chains = 0, small_chain = 0;
};

Times measure(Client& client) {
  const auto median_of = [&](const std::function<void()>& work) {
    std::vector<double> all;
    for (int i = 0; i <= kPairs; ++i) {
      client.synchronize();
      const double took = seconds([&] {
        work();
        client.synchronize();
      });
      if (i > 1) all.push_back(took);  // the first ones define templates
    }
    return median(all);
  };
  const Tensor x = ones({4}), b = full({4}, 0.5);
  return {median_of([&] {
            Tensor left = x, right = b;  // equal chains would be one
            for (int i = 0; i < kLength; ++i) {
              left = doze(left);
              right = doze(right);
            }
            client.synchronize();
          }),
          median_of([&] {
            Tensor y = x;
            for (int i = 0; i < kAdditions; ++i) y = y + b;
            client.synchronize();
          })};
}

Times in_job(int streams) {
  std::vector<std::string> words = {"bench_streams", "--devices", "1", "--compute-streams", std::to_string(streams)};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  Times times;
  const int code = run(static_cast<int>(words.size()), argv.data(), [&](Client& client, int, char**) {
    times = measure(client);
    return 0;
  });
  if (code != 0) throw std::runtime_error("a job ended with code " + std::to_string(code));
  return times;
}

void print(const char* name, double one, double two) {
  std::cout << nlohmann::json{{"name", name}, {"value", two / one}, {"one_ms", one * 1e3}, {"two_ms", two * 1e3}}.dump()
            << '\n';
}

}  // namespace

int main() {
  OperatorRegistry::global().add(doze_op);
  const Times one = in_job(1), two = in_job(2);
  print("streams.two_chains", one.two_chains, two.two_chains);
  print("streams.small_chain", one.small_chain, two.small_chain);
  return 0;
}
