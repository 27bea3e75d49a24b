// Matching of layouts against a rule: axis by axis, then a check that every letter is split in one order everywhere.
#include "mesh/signature.h"

#include <algorithm>
#include <map>

#include "mesh/match_internal.h"

namespace dtorch {

std::string Row::str() const {
  const auto list = [](const std::vector<Placement>& placements) {
    std::string text = "(";
    for (size_t i = 0; i < placements.size(); ++i) text += (i == 0 ? "" : ", ") + placements[i].str();
    return text + ")";
  };
  return list(inputs) + " -> " + list(outputs);
}

namespace internal {
namespace {

struct Cost {
  int64_t bytes = 0;  // moved by reductions
  int64_t converted = 0;
  friend auto operator<=>(const Cost&, const Cost&) = default;
};

// Bytes that the busiest device receives when a Partial of `meta` is reduced over `axis`.
int64_t reduce_bytes(const TensorMeta& meta, int64_t axis, const Placement& to) {
  const Box part = meta.layout.box_at(meta.global_shape, 0);  // the first device's part is the largest
  const int64_t parts = meta.layout.mesh().shape()[axis];
  const int64_t bytes = part.num_elements() * size_of(meta.dtype);
  if (!to.is_shard()) return 2 * bytes * (parts - 1) / parts;
  const int64_t length = part.size[to.dim];
  return length == 0 ? 0 : bytes / length * ((length + parts - 1) / parts) * (parts - 1);
}

// Adds the cost of turning an input's placement on `axis` into `to`; false when the policy doesn't allow it.
bool add_conversion(const TensorMeta& meta, int64_t axis, const Placement& to, ConversionPolicy policy, Cost* cost) {
  const Placement& from = meta.layout.placement(axis);
  if (to.is_shard() && to.dim >= meta.global_shape.ndim()) return false;
  if (from == to) return true;
  if (policy == ConversionPolicy::kNone) return false;
  ++cost->converted;
  if (from.is_replicate()) return to.is_shard() || to.is_partial(kSum) || to.is_partial(kAvg);
  if (policy != ConversionPolicy::kReduce || !from.is_partial() || to.is_partial()) return false;
  cost->bytes += reduce_bytes(meta, axis, to);
  return true;
}

const Row* choose_row(const std::vector<Row>& rows, std::span<const TensorMeta* const> inputs, int64_t axis,
                      ConversionPolicy policy) {
  const Row* best = nullptr;
  Cost best_cost;
  for (const Row& row : rows) {
    Cost cost;
    bool reachable = true;
    for (size_t i = 0; i < inputs.size() && reachable; ++i) {
      reachable = add_conversion(*inputs[i], axis, row.inputs[i], policy, &cost);
    }
    if (!reachable || (best && best_cost <= cost)) continue;
    best = &row;
    best_cost = cost;
  }
  return best;
}

std::string names_of(const DeviceMesh& mesh, const AxisList& axes) {
  std::string text = "{";
  for (int64_t i = 0; i < axes.size(); ++i) text += (i == 0 ? "" : ", ") + mesh.axis_label(axes[i]);
  return text + "}";
}

bool is_prefix(const AxisList& prefix, const AxisList& list) {
  return prefix.size() <= list.size() && std::equal(prefix.begin(), prefix.end(), list.begin());
}

// One dim of one operand, and the axes that must split it.
struct SplitDim {
  bool output = false;
  size_t operand = 0;
  int64_t dim = 0;
  int16_t letter = kNoLetter;
  AxisList kept;   // outermost first: those that split it already
  AxisList added;  // mesh order
  std::string str() const {
    return "dim " + std::to_string(dim) + " of " + (output ? "output " : "input ") + std::to_string(operand);
  }
};

// What the first operand that fixes a letter's order says.
struct LetterOrder {
  AxisList axes;
  const SplitDim* source = nullptr;
};

class OrderCheck {
 public:
  OrderCheck(const DeviceMesh& mesh, const Rule& rule) : mesh_(mesh), rule_(rule) {}

  void add_input(size_t operand, const Layout& now, const Placements& target, int64_t ndim) {
    for (int64_t dim = 0; dim < ndim; ++dim) {
      SplitDim split{false, operand, dim, letter_of(rule_.input_letters, operand, dim), {}, {}};
      for (int8_t axis : now.axes_of_dim(dim)) {
        if (target[axis].is_shard(dim)) split.kept.push_back(axis);
      }
      add_rest(target, &split);
    }
  }
  void add_output(size_t operand, const Placements& target, int64_t ndim) {
    for (int64_t dim = 0; dim < ndim; ++dim) {
      SplitDim split{true, operand, dim, letter_of(rule_.output_letters, operand, dim), {}, {}};
      add_rest(target, &split);
    }
  }

  // False with a reason when two operands carry a letter in different orders.
  bool resolve(std::string* reason) {
    for (const SplitDim& split : splits_) {
      if (split.letter == kNoLetter || split.output) continue;
      LetterOrder& order = orders_[split.letter];
      if (!order.source || split.kept.size() > order.axes.size()) order = {split.kept, &split};
    }
    for (const SplitDim& split : splits_) {
      if (split.letter == kNoLetter) continue;
      LetterOrder& order = orders_[split.letter];
      if (!order.source) order = {{}, &split};
      for (int8_t axis : split.added) {
        if (!split.output && std::find(order.axes.begin(), order.axes.end(), axis) == order.axes.end()) {
          order.axes.push_back(axis);
        }
      }
    }
    for (const SplitDim& split : splits_) {
      if (split.letter == kNoLetter) continue;
      const LetterOrder& order = orders_[split.letter];
      if (split.output && split.added.empty()) continue;  // a row may end a letter's split, as in Shard -> Partial
      const bool same_axes = split.kept.size() + split.added.size() == order.axes.size() || order.source->output;
      if (is_prefix(split.kept, order.axes) && same_axes) continue;
      AxisList own = split.kept;
      for (int8_t axis : split.added) own.push_back(axis);
      *reason = order.source->str() + " is split by the axes " + names_of(mesh_, order.axes) + " and " + split.str() +
                " by " + names_of(mesh_, own) +
                ", outermost first; both must be split by the same axes in the same order";
      return false;
    }
    return true;
  }

  // Axes of all dims of an operand, each dim's in its resolved order.
  AxisList order_of(bool output, size_t operand) const {
    AxisList axes;
    for (const SplitDim& split : splits_) {
      if (split.output != output || split.operand != operand) continue;
      const auto found = orders_.find(split.letter);
      const bool by_letter = split.letter != kNoLetter && found != orders_.end() && !found->second.axes.empty();
      AxisList own = split.kept;
      for (int8_t axis : split.added) own.push_back(axis);
      if (own.empty()) continue;
      for (int8_t axis : by_letter ? found->second.axes : own) axes.push_back(axis);
    }
    return axes;
  }

 private:
  static int16_t letter_of(const std::vector<Letters>& letters, size_t operand, int64_t dim) {
    if (operand >= letters.size() || dim >= letters[operand].size()) return kNoLetter;
    return letters[operand][dim];
  }
  void add_rest(const Placements& target, SplitDim* split) {
    for (int64_t axis = 0; axis < target.size(); ++axis) {
      const int8_t a = static_cast<int8_t>(axis);
      const bool known = std::find(split->kept.begin(), split->kept.end(), a) != split->kept.end();
      if (target[axis].is_shard(split->dim) && !known) split->added.push_back(a);
    }
    splits_.push_back(*split);
  }

  DeviceMesh mesh_;
  const Rule& rule_;
  std::vector<SplitDim> splits_;
  std::map<int16_t, LetterOrder> orders_;
};

std::string placements_on(std::span<const TensorMeta* const> inputs, int64_t axis) {
  std::string text = "(";
  for (size_t i = 0; i < inputs.size(); ++i) text += (i == 0 ? "" : ", ") + inputs[i]->layout.placement(axis).str();
  return text + ")";
}

}  // namespace

std::vector<Row> complete_rows(const Rule& rule, size_t num_inputs, size_t num_outputs) {
  const auto all_replicate = [](const std::vector<Placement>& placements) {
    return std::all_of(placements.begin(), placements.end(), [](const Placement& p) { return p.is_replicate(); });
  };
  std::vector<Row> rows;
  bool found = false;
  for (const Row& row : rule.rows) {
    DTORCH_CHECK(row.inputs.size() == num_inputs && row.outputs.size() == num_outputs, row.str());
    found = found || (all_replicate(row.inputs) && all_replicate(row.outputs));
  }
  if (!found) rows.push_back({std::vector<Placement>(num_inputs), std::vector<Placement>(num_outputs)});
  rows.insert(rows.end(), rule.rows.begin(), rule.rows.end());
  return rows;
}

MatchResult match_rows(const Rule& rule, const std::vector<Row>& rows, std::span<const TensorMeta* const> inputs,
                       std::span<const int64_t> output_ndims, ConversionPolicy policy) {
  const DeviceMesh& mesh = inputs[0]->layout.mesh();
  const int64_t num_axes = mesh.num_axes();
  std::vector<Placements> targets(inputs.size(), Placements(num_axes, Replicate()));
  std::vector<Placements> results(output_ndims.size(), Placements(num_axes, Replicate()));
  MatchResult result;
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    if (mesh.shape()[axis] == 1) continue;
    const Row* row = choose_row(rows, inputs, axis, policy);
    if (!row) {
      result.failure.axis = axis;
      result.failure.reason = "no row accepts " + placements_on(inputs, axis) + " on " +
                              (mesh.axis_names().empty() ? "mesh " : "mesh axis ") + mesh.axis_label(axis);
      return result;
    }
    for (size_t i = 0; i < inputs.size(); ++i) targets[i][axis] = row->inputs[i];
    for (size_t i = 0; i < output_ndims.size(); ++i) results[i][axis] = row->outputs[i];
  }

  OrderCheck check(mesh, rule);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check.add_input(i, inputs[i]->layout, targets[i], inputs[i]->global_shape.ndim());
  }
  for (size_t i = 0; i < output_ndims.size(); ++i) check.add_output(i, results[i], output_ndims[i]);
  if (!check.resolve(&result.failure.reason)) return result;

  Match match;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Layout layout(mesh, targets[i], inputs[i]->global_shape.ndim(), check.order_of(false, i));
    if (layout != inputs[i]->layout) match.conversions.push_back({static_cast<int32_t>(i), layout});
  }
  for (size_t i = 0; i < output_ndims.size(); ++i) {
    match.output_layouts.emplace_back(mesh, results[i], output_ndims[i], check.order_of(true, i));
  }
  result.match = std::move(match);
  return result;
}

}  // namespace internal

MatchResult match_rule(const Rule& rule, std::span<const TensorMeta* const> inputs,
                       std::span<const int64_t> output_ndims, ConversionPolicy policy) {
  DTORCH_CHECK(!inputs.empty(), "a rule without inputs");
  for (const TensorMeta* input : inputs) {
    DTORCH_CHECK(input->layout.mesh() == inputs[0]->layout.mesh(), input->str() + " and " + inputs[0]->str());
  }
  const std::vector<Row> rows = internal::complete_rows(rule, inputs.size(), output_ndims.size());
  MatchResult result = internal::match_rows(rule, rows, inputs, output_ndims, policy);
  if (result.match) return result;

  constexpr size_t kShownRows = 12;
  std::vector<std::string>& printed = result.failure.legal_rows;
  for (const Row& row : rows) {
    const std::string text = row.str();
    if (std::find(printed.begin(), printed.end(), text) == printed.end()) printed.push_back(text);
  }
  if (printed.size() > kShownRows) {
    const size_t more = printed.size() - (kShownRows - 1);
    printed.resize(kShownRows - 1);
    printed.push_back("and " + std::to_string(more) + " more");
  }
  result.failure.fix = internal::cheapest_fix(rule, rows, inputs, output_ndims, policy, result.failure.axis);
  return result;
}

}  // namespace dtorch
