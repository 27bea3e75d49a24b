#include "tests/ops/operator_table.h"

#include <algorithm>
#include <string_view>

#include "checker/sample_values.h"
#include "checker/tuple_choices.h"
#include "dtorch/dtorch.h"
#include "runtime/client/graph_core.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
using namespace checker;
namespace {

constexpr const char* kHead = R"(# Operators

Written by `build/bin/check_operators --table docs/operators.md`; don't edit.

- *Composition*: a function that records other operators and has no kernel of its own.
- Legal rows, for one mesh axis, of the operator's first sample: placements of the inputs -> placements of the outputs. R Replicate, Sd
  Shard(d), P Partial(sum), Pavg, Pmax, Pmin the other Partials. "All R" is always legal and left out. Of a composition: what it accepts
  on two devices, and what comes out.
- Class, when no row fits: *refuses* throws PlacementError; *combines* communicates inside its own plan; *any* takes every layout. Before
  that, every operator slices a Replicate operand, or makes it a Partial addend, without communication.
- Linear in: the inputs that may be pending sums.
- Checked: *samples* by samples of its own on meshes of 2, 3 and 2 x 2; *in others* as a part of what they run (gradients); *by hand*: it
  has no inputs to place, or takes lists whose layouts belong together, and has tests of its own (tests/ops, tests/io).

| operator | signature | legal rows on one axis | class | linear in | gradient | checked |
|---|---|---|---|---|---|---|
)";

constexpr size_t kMostRows = 12;

const char* name_of_class(PlacementClass klass) {
  switch (klass) {
    case PlacementClass::kRefuses:
      return "refuses";
    case PlacementClass::kCombines:
      return "combines";
    case PlacementClass::kAnyLayout:
      break;
  }
  return "any";
}

std::string text_of(const std::vector<Row>& rows) {
  std::string text;
  size_t num_shown = 0;
  for (const Row& row : rows) {
    const auto is_replicate = [](const Placement& p) { return p.is_replicate(); };
    if (std::ranges::all_of(row.inputs, is_replicate) && std::ranges::all_of(row.outputs, is_replicate)) continue;
    if (++num_shown > kMostRows) continue;
    text += (text.empty() ? "`" : " `") + short_text(row) + "`";
  }
  if (num_shown > kMostRows) text += " and " + std::to_string(num_shown - kMostRows) + " more";
  return text.empty() ? "all R only" : text;
}

// The rows of a rule as it answers for one spec.
std::string rows_of(const OperatorDef& op, const OperatorSpec& spec) {
  if (op.rule == nullptr) return op.layouts != nullptr ? "by the boxes of all axes" : "as the caller says";
  const std::shared_ptr<const void> attributes = op.attributes.decode(spec.attributes);
  std::vector<OutputMeta> outputs;
  for (const TensorMeta* meta : spec.outputs) outputs.push_back({meta->global_shape, meta->dtype});
  return text_of(op.rule({op.name, spec.inputs, attributes.get()}, outputs).rows);
}

// What a composition's first sample accepts on two devices, in the order of the tuples; and whether its results have
// gradients.
std::string rows_of_composition(const OperatorDef& op, bool* has_gradient) {
  const std::vector<Sample> samples = op.samples != nullptr ? op.samples() : std::vector<Sample>();
  if (samples.empty() || samples[0].inputs.empty()) return "";
  const Sample& sample = samples[0];
  const DeviceMesh mesh = cpu_mesh({2});
  const CheckOptions options{.max_tuples = 400};
  std::vector<Row> rows;
  for (const Choice& choice : TupleChoices(sample, options).one_axis()) {
    std::vector<Tensor> inputs;
    Row row;
    for (size_t i = 0; i < choice.size(); ++i) {
      const SampleInput& input = sample.inputs[i];
      inputs.push_back(distribute(sample_value(input, 1000 + i), mesh, choice[i]));
      if (input.differentiable && is_floating(input.dtype)) inputs.back().requires_grad_();
      row.inputs.push_back(choice[i][0]);
    }
    try {
      for (const Tensor& output : sample.call(inputs)) {
        row.outputs.push_back(output.placements()[0]);
        *has_gradient = *has_gradient || output.requires_grad();
      }
      rows.push_back(std::move(row));
    } catch (const PlacementError&) {  // not legal
    }
  }
  return text_of(rows);
}

// The operator's spec in its first sample on one device; null when that doesn't record it.
const OperatorSpec* first_spec(const OperatorDef& op, const Graph& graph) {
  const std::vector<Sample> samples = op.samples();
  if (samples.empty()) return nullptr;
  const GraphScope scope(graph);
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < samples[0].inputs.size(); ++i) {
    inputs.push_back(distribute(sample_value(samples[0].inputs[i], 1000 + i), Layout::replicated(cpu_mesh({1}))));
  }
  samples[0].call(inputs);
  for (const auto& spec : graph.core().cache().specs()) {
    if (spec->op == op.index) return spec.get();
  }
  return nullptr;
}

// By creation_test.cc, created_values_test.cc and optimizer_steps_test.cc of this folder, by tests/io and tests/errors.
bool is_checked_by_hand(const OperatorDef& op) {
  constexpr std::string_view kByHand[] = {"full",      "arange",      "eye",        "rand",       "randn",
                                          "randint",   "from_host",   "adamw_step", "sgd_step",   "sum_of_squares",
                                          "scale_all", "token_batch", "file_slice", "hdf5_slice", "replica_hash"};
  return std::ranges::find(kByHand, op.name) != std::end(kByHand);
}

const char* checked_text(const OperatorDef& op, const std::set<std::string>& by_sample,
                         const std::set<std::string>& on_the_way) {
  if (is_checked_by_hand(op)) return "by hand";
  return by_sample.contains(op.name) ? "samples" : on_the_way.contains(op.name) ? "in others" : "no";
}

std::string without_bars(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.replace(at, 1, "\\|");
  return text;
}

}  // namespace

std::string operator_table(const std::set<std::string>& checked_by_sample,
                           const std::set<std::string>& checked_on_the_way) {
  std::string table = kHead;
  const OperatorRegistry& registry = OperatorRegistry::global();
  for (uint16_t index = 0; index < registry.size(); ++index) {
    const OperatorDef& op = registry.at(index);
    const Graph graph = client().new_graph();
    const bool is_composition = op.lowering == Lowering::kKernel && op.infer == nullptr;
    bool has_gradient = op.gradient != nullptr;
    std::string rows;
    if (is_composition) {
      const GraphScope scope(graph);
      rows = rows_of_composition(op, &has_gradient);
    } else if (const OperatorSpec* spec = op.samples != nullptr ? first_spec(op, graph) : nullptr) {
      rows = rows_of(op, *spec);
    }
    const std::string signature = *op.signature != '\0' ? op.signature : op.name;
    table += "| " + std::string(op.name) + (is_composition ? " (composition)" : "") + " | `" + without_bars(signature) +
             "` | " + rows + " | " + name_of_class(op.placement_class) + " | " + op.linear_in + " | " +
             (has_gradient ? "yes" : "no") + " | " + checked_text(op, checked_by_sample, checked_on_the_way) + " |\n";
  }
  return table;
}

}  // namespace dtorch::test
