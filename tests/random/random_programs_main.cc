// random_programs: runs random programs on meshes and on one device, and prints what differs, shrunk to its core.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

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
)";

struct Arguments {
  uint64_t count = 100;
  std::optional<uint64_t> only;
  GenerateOptions generate;
  bool json = false, help = false;
};

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
    } else if (word == "--json") {
      arguments.json = true;
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

int run(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  RunCounts total;
  int64_t wrong = 0;
  const uint64_t first = arguments.only.value_or(0), last = arguments.only ? first + 1 : arguments.count;
  for (uint64_t number = first; number < last; ++number) {
    const Program program = generate_program(number, arguments.generate);
    if (arguments.only) std::cout << program.str();
    const RunResult result = run_program(program);
    total += result.counts;
    if (result.problem.empty()) continue;
    ++wrong;
    report(program, result, arguments.generate.seed);
  }
  print(total, wrong, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), arguments.json);
  return wrong == 0 ? 0 : 1;
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
    return run_in_job(2, 4, [&](dtorch::Client&) { return run(arguments); });
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
