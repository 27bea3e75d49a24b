// check_operators: runs the generic checker over the operators and says what it found; writes docs/operators.md.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include "checker/checker.h"
#include "dtorch/dtorch.h"
#include "tests/ops/excluded_rows.h"
#include "tests/ops/operator_table.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
using namespace checker;
namespace {

constexpr const char* kUsage = R"(check_operators [options] [operator...]
Checks every operator (or the named ones) on meshes of 2, 3 and 2 x 2 devices against the same call on one device.
  --full        every tuple of placements, all Partials, all pairs on 2 x 2
  --json        print one JSON object
  --table FILE  write the table of all operators (docs/operators.md)
  --seed N      of the sampled tuples (1)
)";

struct Arguments {
  bool json = false, help = false;
  std::string table;
  CheckOptions check;
  std::set<std::string> only;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  bool full = false;
  uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw UserError(word + " needs a value");
      return std::string(argv[++i]);
    };
    if (word == "--json") {
      arguments.json = true;
    } else if (word == "--full") {
      full = true;
    } else if (word == "--table") {
      arguments.table = value();
    } else if (word == "--seed") {
      seed = std::stoull(value());
    } else if (word == "--help") {
      arguments.help = true;
    } else if (word.starts_with("-")) {
      throw UserError("unknown option " + word + "\n" + kUsage);
    } else {
      arguments.only.insert(word);
    }
  }
  if (full) arguments.check = CheckOptions::full();
  arguments.check.seed = seed;
  arguments.check.excluded = excluded_rows();
  return arguments;
}

void print_json(const CheckCounts& counts, int64_t num_wrong, double seconds) {
  const std::pair<const char*, int64_t> figures[] = {{"operators", counts.operators},
                                                     {"samples", counts.samples},
                                                     {"tuples_tried", counts.tuples_tried},
                                                     {"accepted", counts.accepted},
                                                     {"refused", counts.refused},
                                                     {"fixes_executed", counts.fixes_executed},
                                                     {"gradients_checked", counts.gradients_checked},
                                                     {"rows_found", counts.rows_found},
                                                     {"rows_accepted", counts.rows_accepted},
                                                     {"rows_excluded", counts.rows_excluded},
                                                     {"repeats_compared", counts.repeats_compared},
                                                     {"wrong", num_wrong}};
  std::printf("{");
  for (const auto& [name, figure] : figures) std::printf("\"%s\": %lld, ", name, static_cast<long long>(figure));
  std::printf("\"seconds\": %.1f}\n", seconds);
}

int check(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  CheckCounts total;
  int64_t num_wrong = 0;
  std::set<std::string> checked, run;
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (const std::string& name : arguments.only) {
    if (registry.find(name) == nullptr) throw UserError("no operator is named '" + name + "'");
  }
  for (uint16_t index = 0; index < registry.size(); ++index) {
    const OperatorDef& op = registry.at(index);
    if (op.samples == nullptr || (!arguments.only.empty() && !arguments.only.contains(op.name))) continue;
    const OperatorReport report = check_operator(client(), op, arguments.check);
    total += report.counts;
    num_wrong += static_cast<int64_t>(report.problems.size());
    for (const std::string& problem : report.problems) std::cerr << "wrong: " << problem << '\n';
    if (report.problems.empty()) checked.insert(op.name);
    run.insert(report.operators_run.begin(), report.operators_run.end());
    if (!arguments.json) {
      std::cout << op.name << ": " << report.counts.accepted << " of " << report.counts.tuples_tried
                << " tuples accepted, " << report.counts.gradients_checked << " gradients, " << report.problems.size()
                << " wrong\n";
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (arguments.json) print_json(total, num_wrong, seconds);
  if (!arguments.table.empty()) {
    std::ofstream file(arguments.table);
    file << operator_table(checked, run);
    file.close();
    if (!file) throw UserError("can't write " + arguments.table);
  }
  return num_wrong == 0 ? 0 : 1;
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
    return run_in_job(2, 4, [&](dtorch::Client&) { return check(arguments); });
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
