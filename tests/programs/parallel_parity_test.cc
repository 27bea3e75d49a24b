// Every form of parallelism, alone and combined, against PyTorch's results on one device, in float64 to 1e-9.
#include <gtest/gtest.h>

#include <iterator>
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

std::vector<std::string> forms_of_dense_layers() {
  std::vector<std::string> forms;
  for (int stage : {1, 2, 3}) {
    for (const char* dp : {"2", "3", "4"})
      forms.push_back(std::string("--devices ") + dp + " --dp " + dp + " --zero " + std::to_string(stage));
  }
  for (const char* form :
       {"--devices 2 --tp 2", "--devices 3 --tp 3", "--devices 4 --tp 4", "--devices 2 --tp 2 --sp",
        "--devices 3 --tp 3 --sp", "--devices 2 --cp-ulysses 2", "--devices 2 --cp-ring 2", "--devices 3 --cp-ring 3",
        "--devices 4 --cp-ring 4", "--devices 3 --cp-ring 3 --ring-order balanced",
        "--devices 4 --cp-ulysses 2 --cp-ring 2", "--devices 2 --dp 2 --recompute"})
    forms.emplace_back(form);
  return forms;
}

// Every form alone, for every reference. The balance loss of a batch isn't the mean of those of its parts, so that
// llama_moe has the whole batch and llama_moe_noaux several micro-batches.
std::vector<Case> single_forms() {
  std::vector<Case> cases;
  const auto add = [&](const char* reference, const std::string& layout) {
    const int processes[] = {0, 3, 0, 2, 0, 4};
    cases.push_back({reference, processes[cases.size() % std::size(processes)], layout});
  };
  for (const std::string& form : forms_of_dense_layers()) {
    for (const char* reference : {"llama", "llama_tied_masked", "llama_moe"}) add(reference, form);
    for (const char* reference : {"llama_tied_masked", "llama_moe_noaux"}) add(reference, form + " --micro-batches 3");
  }
  for (const char* reference : {"llama", "llama_tied_masked", "llama_moe_noaux"}) {
    for (const char* schedule : {"gpipe --micro-batches 3", "1f1b --micro-batches 3", "interleaved --micro-batches 4"})
      add(reference, std::string("--devices 2 --pp 2 --schedule ") + schedule);
  }
  add("llama_moe", "--devices 1");
  add("llama_moe_noaux", "--devices 1 --micro-batches 3");
  for (const char* ep : {"2", "3", "4"}) {
    const std::string form = std::string("--devices ") + ep + " --ep " + ep;
    add("llama_moe", form);
    add("llama_moe_noaux", form);
    add("llama_moe_noaux", form + " --micro-batches 3");
  }
  return cases;
}

// Experts with what else splits or keeps their weights; the seeded ones below have few of them.
std::vector<Case> expert_combinations() {
  return {{"llama_moe", 3, "--devices 8 --dp 2 --ep 2 --tp 2 --zero 3"},
          {"llama_moe", 4, "--devices 6 --dp 3 --ep 2 --zero 3 --recompute"},
          {"llama_moe_noaux", 3, "--devices 8 --dp 2 --ep 2 --cp-ring 2 --zero 3 --micro-batches 2"},
          {"llama_moe_noaux", 4, "--devices 8 --pp 2 --ep 2 --tp 2 --sp --schedule 1f1b --micro-batches 3"},
          {"llama_moe_noaux", 3, "--devices 8 --pp 2 --ep 2 --dp 2 --zero 2 --schedule interleaved --micro-batches 4"}};
}

// Two to four forms at once on up to 8 devices over 2 and 3 nodes (and a process of the controller).
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
    if (sizes.contains("cp-ring") && any(2) > 0) layout += " --ring-order balanced";
    const char* dense[] = {"llama", "llama_tied_masked"};
    const std::string reference = !experts ? dense[any(2)] : micro > 1 ? "llama_moe_noaux" : "llama_moe";
    cases.push_back({reference, 3 + any(2), layout});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Alone, ParallelForm, testing::ValuesIn(single_forms()));
INSTANTIATE_TEST_SUITE_P(Experts, ParallelForm, testing::ValuesIn(expert_combinations()));
INSTANTIATE_TEST_SUITE_P(Combined, ParallelForm, testing::ValuesIn(combinations(28)));

}  // namespace
}  // namespace dtorch::test
