// Every form of parallelism, alone and combined, against PyTorch's results on one device, in float64 to 1e-9.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>

#include "tests/programs/reference_parity.h"

namespace dtorch::test {
namespace {

struct Case {
  std::string reference;
  int np = 0;
  std::string layout;  // options, apart by spaces
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.reference << " np " << c.np << ' ' << c.layout; }

class ParallelForm : public testing::TestWithParam<Case> {};

TEST_P(ParallelForm, GivesPyTorchsLossesOnOneDevice) {
  const Case& c = GetParam();
  expect_pytorchs_results(c.reference, "float64", run_reference(c.reference, "float64", c.np, words_of(c.layout)));
}

std::vector<Case> single_forms() {
  std::vector<Case> cases;
  for (int stage : {1, 2, 3}) {
    for (int dp : {2, 3, 4}) {
      cases.push_back(
          {"llama", dp == 3 ? 2 : 0,
           "--devices " + std::to_string(dp) + " --dp " + std::to_string(dp) + " --zero " + std::to_string(stage)});
    }
    cases.push_back({"llama_tied_masked", 0, "--devices 2 --dp 2 --micro-batches 3 --zero " + std::to_string(stage)});
  }
  for (const char* layout : {
           "--devices 2 --tp 2",
           "--devices 4 --tp 4",
           "--devices 2 --tp 2 --sp",
           "--devices 3 --tp 3 --sp",
           "--devices 2 --pp 2 --micro-batches 3 --schedule gpipe",
           "--devices 2 --pp 2 --micro-batches 3 --schedule 1f1b",
           "--devices 2 --pp 2 --micro-batches 4 --schedule interleaved",
           "--devices 2 --cp-ulysses 2",
           "--devices 2 --cp-ring 2",
           "--devices 3 --cp-ring 3",
           "--devices 4 --cp-ring 4",
           "--devices 4 --cp-ulysses 2 --cp-ring 2",
           "--devices 2 --dp 2 --recompute",
       }) {
    cases.push_back({"llama", 0, layout});
  }
  cases.push_back({"llama_tied_masked", 2, "--devices 2 --pp 2 --micro-batches 2"});
  cases.push_back({"llama_moe", 0, "--devices 1"});
  cases.push_back({"llama_moe_noaux", 0, "--devices 1 --micro-batches 3"});
  for (int ep : {2, 3, 4})
    cases.push_back({"llama_moe", ep == 2 ? 2 : 0, "--devices " + std::to_string(ep) + " --ep " + std::to_string(ep)});
  return cases;
}

// Two to four forms at once on up to 8 devices over 1 to 3 processes.
std::vector<Case> combinations(size_t count) {
  std::vector<Case> cases;
  std::mt19937 random(5);
  const auto any = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  while (cases.size() < count) {
    const bool experts = any(5) < 2;
    std::vector<std::string> axes = {"dp", "tp", "pp", "cp-ulysses", "cp-ring"};
    if (experts) axes.emplace_back("ep");
    std::map<std::string, int> sizes;
    int devices = 1;
    for (int wanted = 2 + any(3); wanted > 0; --wanted) {
      const std::string axis = axes[static_cast<size_t>(any(static_cast<int>(axes.size())))];
      const int size = axis == "pp" || any(4) > 0 ? 2 : 3;
      if (sizes.contains(axis) || devices * size > 8) continue;
      sizes[axis] = size;
      devices *= size;
    }
    if (sizes.size() < 2) continue;
    std::string layout = "--devices " + std::to_string(devices);
    for (const char* axis : {"dp", "tp"}) sizes.try_emplace(axis, 1);
    if (sizes["tp"] * (sizes.contains("cp-ulysses") ? sizes["cp-ulysses"] : 1) > 6) continue;  // heads
    for (const auto& [axis, size] : sizes) layout += " --" + axis + " " + std::to_string(size);
    if (sizes["dp"] > 1 && any(3) > 0) layout += " --zero " + std::to_string(1 + any(3));
    if (sizes["tp"] > 1 && any(2) > 0) layout += " --sp";
    int micro = 1 + any(4);
    if (sizes.contains("pp")) {
      micro = std::max(micro, 2);
      const char* schedules[] = {"gpipe", "1f1b", "interleaved"};
      layout += std::string(" --schedule ") + schedules[any(3)];
    }
    if (micro > 1) layout += " --micro-batches " + std::to_string(micro);
    if (any(3) == 0) layout += " --recompute";
    const char* dense[] = {"llama", "llama_tied_masked"};
    const std::string reference = !experts ? dense[any(2)] : micro > 1 ? "llama_moe_noaux" : "llama_moe";
    const int processes[] = {0, 2, 3};
    cases.push_back({reference, processes[any(3)], layout});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Alone, ParallelForm, testing::ValuesIn(single_forms()));
INSTANTIATE_TEST_SUITE_P(Combined, ParallelForm, testing::ValuesIn(combinations(28)));

}  // namespace
}  // namespace dtorch::test
