#include "checker/check_operators.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <string>
#include <string_view>

#include "runtime/launch/run.h"

namespace dtorch {
namespace {

constexpr int64_t kDevices = 4;  // meshes of 2, 3 and 2 x 2

checker::CheckOptions parse(int argc, char** argv) {
  bool full = false;
  uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--full") {
      full = true;
    } else if (word == "--seed" && i + 1 < argc) {
      const std::string number = argv[++i];
      if (number.empty() || number.size() > 18 || number.find_first_not_of("0123456789") != std::string::npos) {
        throw UserError("--seed " + number + ": must be a whole number of at least 0");
      }
      seed = std::stoull(number);
    } else {
      throw UserError("unknown argument " + std::string(word) + "; allowed are --full, --seed N and the runtime's own");
    }
  }
  checker::CheckOptions options = full ? checker::CheckOptions::full() : checker::CheckOptions{};
  options.seed = seed;
  return options;
}

int check(Client& client, const std::vector<OperatorDef*>& operators, const checker::CheckOptions& options) {
  if (client.num_devices() < kDevices) {
    throw UserError("the checker needs at least " + std::to_string(kDevices) + " devices, this job has " +
                    std::to_string(client.num_devices()) + "; start it with --devices " + std::to_string(kDevices));
  }
  bool is_right = true;
  std::set<std::string> recorded;
  for (const OperatorDef* op : operators) {
    if (op->samples == nullptr) continue;
    const checker::OperatorReport report = checker::check_operator(client, *op, options);
    recorded.insert(report.operators_run.begin(), report.operators_run.end());
    for (const std::string& problem : report.problems) std::cerr << "wrong: " << problem << '\n';
    is_right = is_right && report.problems.empty();
    std::cout << op->name << ": " << report.counts.accepted << " of " << report.counts.tuples_tried
              << " tuples accepted, " << report.counts.gradients_checked << " gradients, " << report.problems.size()
              << " wrong" << std::endl;
  }
  for (const OperatorDef* op : operators) {
    if (op->samples != nullptr || recorded.contains(op->name)) continue;
    std::cerr << "wrong: " << op->name << " has no samples, and no other operator's samples record it\n";
    is_right = false;
  }
  return is_right ? 0 : 1;
}

}  // namespace

int check_operators(int argc, char** argv, const std::vector<OperatorDef*>& operators,
                    std::span<const checker::ExcludedRow> excluded) {
  OperatorRegistry& registry = OperatorRegistry::global();

  std::vector<std::string> words(argv, argv + argc);
  const bool names_devices = std::ranges::any_of(
      words, [](const std::string& word) { return word == "--devices" || word.starts_with("--devices="); });
  if (!names_devices) words.insert(words.begin() + (argc > 0 ? 1 : 0), {"--devices", std::to_string(kDevices)});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  try {
    for (OperatorDef* op : operators) {
      if (registry.find(op->name) != op) registry.add(*op);
    }
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return run(static_cast<int>(words.size()), pointers.data(), [&](Client& client, int left, char** arguments) {
    checker::CheckOptions options = parse(left, arguments);
    options.excluded = excluded;
    return check(client, operators, options);
  });
}

}  // namespace dtorch
