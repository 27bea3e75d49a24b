// check_operators: runs the generic checker over the operators and says what it found; writes docs/operators.md.
//
// With --jobs the work is done by that many processes, each a job of its own: they take one operator after the other
// from a counter that they share, and send what they counted through a pipe when there are no more.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <new>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "checker/checker.h"
#include "dtorch/dtorch.h"
#include "runtime/worker/prepared_check.h"
#include "tests/ops/excluded_rows.h"
#include "tests/ops/operator_table.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
using namespace checker;
namespace {

constexpr const char* kUsage = R"(check_operators [options] [operator...]
Checks every operator (or the named ones) on meshes of 2, 3 and 2 x 2 devices against the same call on one device.
  --full        every tuple of placements, all Partials, all pairs on 2 x 2
  --jobs N      processes that share the operators (1)
  --every N     only every Nth operator (1)
  --devices N   of the job's two nodes together (8)
  --json        print one JSON object; what is done is told on stderr
  --table FILE  write the table of all operators (docs/operators.md)
  --seed N      of the sampled tuples (1)
)";

struct Arguments {
  bool json = false, help = false;
  int jobs = 1;
  uint32_t every = 1;
  int devices = 8;
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
    } else if (word == "--jobs") {
      arguments.jobs = std::stoi(value());
      if (arguments.jobs < 1 || arguments.jobs > 256) throw UserError("--jobs: from 1 to 256");
    } else if (word == "--every") {
      const int every = std::stoi(value());
      if (every < 1) throw UserError("--every: at least 1");
      arguments.every = static_cast<uint32_t>(every);
    } else if (word == "--devices") {
      arguments.devices = std::stoi(value());
      if (arguments.devices < 4 || arguments.devices > 64) throw UserError("--devices: from 4 to 64");
    } else if (word == "--help") {
      arguments.help = true;
    } else if (word.starts_with("-")) {
      throw UserError("unknown option " + word + "\n" + kUsage);
    } else {
      arguments.only.insert(word);
    }
  }
  if (arguments.every > 1 && !arguments.table.empty()) throw UserError("--table is of all operators: --every 1");
  if (arguments.jobs > 1 && !arguments.table.empty()) throw UserError("--table is written by one process: --jobs 1");
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

// What one process has found.
struct Found {
  CheckCounts counts;
  int64_t num_wrong = 0;
};
static_assert(std::is_trivially_copyable_v<Found>, "it goes through a pipe");

using Next = std::atomic<uint32_t>;  // the operator that nobody has taken yet, by its place in the registry

void tell(const Arguments& arguments, const OperatorDef& op, const OperatorReport& report, double seconds) {
  std::ostringstream line;
  line << op.name << ": " << report.counts.accepted << " of " << report.counts.tuples_tried << " tuples accepted, "
       << report.counts.gradients_checked << " gradients, " << report.problems.size() << " wrong, " << std::fixed
       << std::setprecision(1) << seconds << " s\n";
  for (const std::string& problem : report.problems) line << "wrong: " << problem << '\n';
  (arguments.json || !report.problems.empty() ? std::cerr : std::cout) << line.str() << std::flush;
}

Found check(const Arguments& arguments, Next& next) {
  Found found;
  std::set<std::string> checked, run;
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (const std::string& name : arguments.only) {
    if (registry.find(name) == nullptr) throw UserError("no operator is named '" + name + "'");
  }
  while (true) {
    const uint32_t index = next.fetch_add(1);
    if (index >= registry.size()) break;
    const OperatorDef& op = registry.at(static_cast<uint16_t>(index));
    if (index % arguments.every != 0) continue;
    if (op.samples == nullptr || (!arguments.only.empty() && !arguments.only.contains(op.name))) continue;
    const auto begin = std::chrono::steady_clock::now();
    const OperatorReport report = check_operator(client(), op, arguments.check);
    found.counts += report.counts;
    found.num_wrong += static_cast<int64_t>(report.problems.size());
    if (report.problems.empty()) checked.insert(op.name);
    run.insert(report.operators_run.begin(), report.operators_run.end());
    tell(arguments, op, report, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  if (!arguments.table.empty()) {
    std::ofstream file(arguments.table);
    file << operator_table(checked, run);
    file.close();
    if (!file) throw UserError("can't write " + arguments.table);
  }
  return found;
}

// In a job of this process.
Found check_here(const Arguments& arguments, Next& next) {
  dtorch::set_check_prepared(true);
  Found found;
  if (run_in_job(2, arguments.devices, [&](Client&) { return found = check(arguments, next), 0; }) != 0)
    throw RuntimeFault("the checker's job has failed");
  return found;
}

// A child's whole life.
[[noreturn]] void serve(const Arguments& arguments, Next& next, int pipe) {
  int code = 1;
  try {
    const Found found = check_here(arguments, next);
    if (write(pipe, &found, sizeof(found)) == static_cast<ssize_t>(sizeof(found))) code = 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
  }
  _exit(code);
}

Found check_in_processes(const Arguments& arguments, Next& next) {
  std::vector<std::pair<pid_t, int>> children;  // and what they say
  for (int i = 0; i < arguments.jobs; ++i) {
    int ends[2];
    if (pipe(ends) != 0) throw RuntimeFault("no pipe for a child");
    const pid_t pid = fork();
    if (pid < 0) throw RuntimeFault("no process for a child");
    if (pid == 0) {
      close(ends[0]);
      serve(arguments, next, ends[1]);
    }
    close(ends[1]);
    children.emplace_back(pid, ends[0]);
  }
  Found total;
  bool all = true;
  for (const auto& [pid, end] : children) {
    Found found;
    int status = 0;
    const bool told = read(end, &found, sizeof(found)) == static_cast<ssize_t>(sizeof(found));
    close(end);
    all &= waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 && told;
    total.counts += found.counts;
    total.num_wrong += found.num_wrong;
  }
  if (!all) throw RuntimeFault("a process of the checker has failed");
  return total;
}

int check_operators(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  // Shared with the children.
  void* const memory = mmap(nullptr, sizeof(Next), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw RuntimeFault("no shared memory");
  Next& next = *new (memory) Next(0);
  const Found found = arguments.jobs > 1 ? check_in_processes(arguments, next) : check_here(arguments, next);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (arguments.json) print_json(found.counts, found.num_wrong, seconds);
  return found.num_wrong == 0 ? 0 : 1;
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
    return check_operators(arguments);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
