#include "checker/checker.h"

#include <algorithm>
#include <map>

#include "checker/cache_check.h"
#include "checker/row_search.h"
#include "checker/sample_run.h"
#include "checker/sample_values.h"
#include "dtorch/dtorch.h"
#include "runtime/client/graph_core.h"

namespace dtorch::checker {
namespace {

// Rows that the search found, and what became of each.
class RowCheck {
 public:
  RowCheck(const OperatorDef& op, const CheckOptions& options, std::vector<FoundRow> rows)
      : op_(op), options_(options), rows_(std::move(rows)) {}

  // The inputs of rows that hold on a sample, and their numbers.
  std::vector<std::vector<Placement>> required(size_t sample, std::vector<size_t>* numbers) const {
    std::vector<std::vector<Placement>> tuples;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (std::ranges::find(rows_[i].samples, sample) == rows_[i].samples.end()) continue;
      tuples.push_back(rows_[i].row.inputs);
      numbers->push_back(i);
    }
    return tuples;
  }
  void refuse(size_t number, const Sample& sample) { refused_in_.emplace(number, sample.name); }

  void report(OperatorReport& report) const {
    std::set<std::string> accepted;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const std::string text = short_text(rows_[i].row);
      ++report.counts.rows_found;
      const auto refused = refused_in_.find(i);
      if (refused == refused_in_.end()) {
        ++report.counts.rows_accepted;
        accepted.insert(text);
      } else if (is_excluded(text)) {
        ++report.counts.rows_excluded;
        report.excluded.insert(text);
      } else {
        report.problems.push_back(op_.name + (": sample '" + refused->second) + "': the row " + text +
                                  " needs no communication, and is refused");
      }
    }
  }

 private:
  bool is_excluded(const std::string& row) const {
    return std::ranges::any_of(
        options_.excluded, [&](const ExcludedRow& e) { return e.op == std::string_view(op_.name) && e.row == row; });
  }

  const OperatorDef& op_;
  const CheckOptions& options_;
  const std::vector<FoundRow> rows_;
  std::map<size_t, std::string> refused_in_;  // number of a row, name of a sample
};

}  // namespace

CheckCounts& CheckCounts::operator+=(const CheckCounts& other) {
  operators += other.operators;
  samples += other.samples;
  tuples_tried += other.tuples_tried;
  accepted += other.accepted;
  refused += other.refused;
  fixes_executed += other.fixes_executed;
  gradients_checked += other.gradients_checked;
  rows_found += other.rows_found;
  rows_accepted += other.rows_accepted;
  rows_excluded += other.rows_excluded;
  repeats_compared += other.repeats_compared;
  return *this;
}

OperatorReport check_operator(Client& client, const OperatorDef& op, const CheckOptions& options) {
  OperatorReport report;
  if (op.samples == nullptr) return report;
  report.counts.operators = 1;
  const std::vector<Sample> samples = op.samples();
  RowCheck rows(op, options, find_rows(client, samples, options.seed, options.max_searched));
  CheckOptions of_sample = options;
  if (options.of_operator && !samples.empty()) {
    const auto share = [&](int64_t most) { return std::max<int64_t>(1, most / static_cast<int64_t>(samples.size())); };
    of_sample.max_pairs = share(options.max_pairs);
    of_sample.max_others = share(options.max_others);
  }
  const Graph graph = client.new_graph();
  {
    const GraphScope scope(graph);
    for (size_t s = 0; s < samples.size(); ++s) {
      ++report.counts.samples;
      std::vector<size_t> numbers;
      SampleRun run(op.name, samples[s], of_sample, report);
      run.run(rows.required(s, &numbers));
      for (size_t refused : run.refused()) rows.refuse(numbers[refused], samples[s]);
    }
  }
  rows.report(report);
  for (std::string& wrong :
       check_repeated_calls(client, op, samples, options.seed, options.max_repeats, &report.counts.repeats_compared)) {
    report.problems.push_back(std::move(wrong));
  }
  for (std::string& wrong : check_samples(op, samples)) report.problems.push_back(std::move(wrong));
  for (std::string& wrong : check_codecs(graph)) report.problems.push_back(std::move(wrong));
  for (const auto& spec : graph.core().cache().specs()) {
    report.operators_run.insert(OperatorRegistry::global().at(spec->op).name);
  }
  return report;
}

OperatorReport check_sample(Client& client, const Sample& sample, const CheckOptions& options) {
  OperatorReport report;
  report.counts.samples = 1;
  const Graph graph = client.new_graph();
  {
    const GraphScope scope(graph);
    SampleRun("call", sample, options, report).run({});
  }
  for (const auto& spec : graph.core().cache().specs()) {
    report.operators_run.insert(OperatorRegistry::global().at(spec->op).name);
  }
  return report;
}

std::vector<std::string> check_samples(const OperatorDef& op, const std::vector<Sample>& samples) {
  std::vector<std::string> problems;
  bool has_inputs = false, is_uneven = false, is_small = false;
  for (const Sample& sample : samples) {
    for (const SampleInput& input : sample.inputs) {
      has_inputs = true;
      for (int64_t size : input.global_shape) {
        is_uneven = is_uneven || (size > 1 && size % 2 != 0);
        is_small = is_small || size <= 1;
      }
    }
  }
  const std::string name = op.name;
  if (samples.size() < 2) problems.push_back(name + ": it needs at least two samples");
  if (has_inputs && !is_uneven) problems.push_back(name + ": no sample has a dim that two devices split unevenly");
  if (has_inputs && !is_small) problems.push_back(name + ": no sample has a dim of size 0 or 1");
  return problems;
}

std::vector<std::string> check_codecs(const Graph& graph) {
  std::vector<std::string> problems;
  const auto refuses = [](const AttributeCodec& codec, const std::string& bytes) {
    try {
      codec.decode(bytes);
      return false;
    } catch (const DecodeError&) {
      return true;
    }
  };
  for (const auto& spec : graph.core().cache().specs()) {
    const OperatorDef& op = OperatorRegistry::global().at(spec->op);
    const std::string& bytes = spec->attributes;
    const std::string name = std::string("attributes of ") + op.name + " (" + op.attributes.print(bytes) + ")";
    if (op.attributes.encode(op.attributes.decode(bytes).get()) != bytes)
      problems.push_back(name + " don't survive a round trip");
    if (!refuses(op.attributes, bytes + '\0')) problems.push_back(name + ": a byte too many is accepted");
    if (!bytes.empty() && !refuses(op.attributes, bytes.substr(0, bytes.size() - 1))) {
      problems.push_back(name + ": a byte too few is accepted");
    }
  }
  return problems;
}

}  // namespace dtorch::checker
