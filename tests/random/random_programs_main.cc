// random_programs: runs random programs on meshes and on one device, and prints what differs, shrunk to its core.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "runtime/base/options_table.h"
#include "runtime/worker/prepared_check.h"
#include "tests/random/run_program.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
namespace {

constexpr const char* kUsage = R"(random_programs [options]
Runs random programs (calls, redistributions, several meshes, gradients) on meshes and on one device.
  --count N   programs (100)
  --seed S    of all of them (1)
  --only N    only program number N of the seed; prints it
  --json      print one JSON object
  --nodes N   of the job, which has 4 devices (2)
  --each-pass in a job for every choice of passes: none, all, all but one; every job must give the bits of the first
  --compute-streams N  in a job with one compute stream a device, and one with N, which must give the same bits
)";

struct Arguments {
  uint64_t count = 100;
  std::optional<uint64_t> only;
  GenerateOptions generate;
  bool json = false, each_pass = false, help = false;
  std::string compute_streams;
  int nodes = 2;
};
constexpr int kDevices = 4;

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] {
      if (i + 1 == argc) throw UserError(word + " needs a number");
      return std::stoull(argv[++i]);
    };
    if (word == "--count") {
      arguments.count = number();
    } else if (word == "--seed") {
      arguments.generate.seed = number();
    } else if (word == "--only") {
      arguments.only = number();
    } else if (word == "--nodes") {
      const uint64_t nodes = number();
      if (nodes < 1 || nodes > kDevices) throw UserError("--nodes: from 1 to " + std::to_string(kDevices));
      arguments.nodes = static_cast<int>(nodes);
    } else if (word == "--json") {
      arguments.json = true;
    } else if (word == "--each-pass") {
      arguments.each_pass = true;
    } else if (word == "--compute-streams") {
      arguments.compute_streams = std::to_string(number());
    } else if (word == "--help") {
      arguments.help = true;
    } else {
      throw UserError("unknown option " + word + "\n" + kUsage);
    }
  }
  return arguments;
}

void report(const Program& program, const RunResult& result, uint64_t seed) {
  std::cerr << "wrong: program " << program.number << " of seed " << seed << ": " << result.problem << "\n";
  const Program core = shrink_program(program);
  std::cerr << core.str() << "// " << run_program(core).problem << "\n";
}

void print(const RunCounts& counts, int64_t wrong, double seconds, bool json) {
  const std::pair<const char*, int64_t> figures[] = {{"programs", counts.programs},
                                                     {"operators", counts.operators},
                                                     {"sharded", counts.sharded},
                                                     {"redistributions", counts.redistributions},
                                                     {"refused", counts.refused},
                                                     {"repaired", counts.repaired},
                                                     {"values_compared", counts.values_compared},
                                                     {"with_gradients", counts.with_gradients},
                                                     {"gradients_compared", counts.gradients_compared},
                                                     {"wrong", wrong}};
  std::string text;
  for (const auto& [name, figure] : figures)
    text += (json ? "\"" : "") + std::string(name) + (json ? "\": " : " ") + std::to_string(figure) + ", ";
  std::printf(json ? "{%s\"seconds\": %.1f}\n" : "%s%.1f seconds\n", text.c_str(), seconds);
}

// The values of programs on one device, by number of the program.
using Values = std::map<uint64_t, std::map<int, RunResult::OneDevice>>;

// What differs from what another job gave; "" when nothing does.
std::string difference(const std::map<int, RunResult::OneDevice>& expected,
                       const std::map<int, RunResult::OneDevice>& values) {
  if (expected.size() != values.size()) return std::to_string(values.size()) + " values";
  for (const auto& [number, value] : values) {
    const auto other = expected.find(number);
    if (other == expected.end() || !other->second.value.equals(value.value))
      return "value $" + std::to_string(number) + " is " + value.value.str();
  }
  return "";
}

// other_job: of the job that others are compared with; empty: this one's are kept there. Null: nobody compares.
int run(const Arguments& arguments, Values* other_job = nullptr) {
  const bool keeps = other_job != nullptr && other_job->empty();
  const auto begin = std::chrono::steady_clock::now();
  RunCounts total;
  int64_t wrong = 0;
  const uint64_t first = arguments.only.value_or(0), last = arguments.only ? first + 1 : arguments.count;
  for (uint64_t number = first; number < last; ++number) {
    const Program program = generate_program(number, arguments.generate);
    if (arguments.only) std::cout << program.str();
    const RunResult result = run_program(program);
    total += result.counts;
    if (keeps) (*other_job)[number] = result.values;
    if (other_job != nullptr && !keeps && result.problem.empty()) {
      const std::string differs = difference(other_job->at(number), result.values);
      if (differs.empty()) continue;
      std::cerr << "wrong: program " << number << ": in another job " << differs << "\n";
      ++wrong;
      continue;
    }
    if (result.problem.empty()) continue;
    ++wrong;
    report(program, result, arguments.generate.seed);
  }
  print(total, wrong, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), arguments.json);
  return wrong == 0 ? 0 : 1;
}

// What DTORCH_PASSES may be: none, all, and all but one.
std::vector<std::string> choices_of_passes() {
  const auto all_but = [](const std::string& left_out) {
    std::string names;
    for (const std::string name : kPassNames) {
      if (name != left_out) names += (names.empty() ? "" : ",") + name;
    }
    return names;
  };
  std::vector<std::string> choices = {"none", all_but("")};
  for (const char* name : kPassNames) choices.push_back(all_but(name));
  return choices;
}

// In a job for each of the variable's values; all must give the bits of the first.
int run_jobs(const Arguments& arguments, const char* variable, const std::vector<std::string>& choices) {
  Values first;
  int code = 0;
  for (const std::string& choice : choices) {
    if (!arguments.json) std::printf("%s=%s: ", variable, choice.c_str());
    if (setenv(variable, choice.c_str(), 1) != 0) throw UserError(std::string(variable) + " can't be set");
    code |= run_in_job(arguments.nodes, kDevices, [&](Client&) { return run(arguments, &first); });
  }
  return code;
}

}  // namespace
}  // namespace dtorch::test

int main(int argc, char** argv) {
  using namespace dtorch::test;
  try {
    const Arguments arguments = parse(argc, argv);
    if (arguments.help) {
      std::cout << kUsage;
      return 0;
    }
    dtorch::set_check_prepared(true);
    if (arguments.each_pass) return run_jobs(arguments, "DTORCH_PASSES", choices_of_passes());
    if (!arguments.compute_streams.empty())
      return run_jobs(arguments, "DTORCH_COMPUTE_STREAMS", {"1", arguments.compute_streams});
    return run_in_job(arguments.nodes, kDevices, [&](dtorch::Client&) { return run(arguments); });
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
