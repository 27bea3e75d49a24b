// Helpers that build rules from shapes, formulas and dims. Letters are numbers: dim d of the result (or of the first
// input) is d + 1.
#include <algorithm>

#include "mesh/signature.h"

namespace dtorch {
namespace {

constexpr ReduceOp kLinearKinds[] = {kSum, kAvg};

Row replicated_row(size_t num_inputs, size_t num_outputs) {
  return {std::vector<Placement>(num_inputs), std::vector<Placement>(num_outputs)};
}

// Rows in which Partial passes through.
void add_linear_rows(Linear linear, size_t num_inputs, size_t num_outputs, std::vector<Row>* rows) {
  if (linear == Linear::kNo || num_inputs == 0) return;
  for (ReduceOp kind : kLinearKinds) {
    const std::vector<Placement> outputs(num_outputs, Partial(kind));
    if (linear == Linear::kInAll) {
      rows->push_back({std::vector<Placement>(num_inputs, Partial(kind)), outputs});
      continue;
    }
    for (size_t i = 0; i < (linear == Linear::kInFirst ? 1 : num_inputs); ++i) {
      Row row{std::vector<Placement>(num_inputs), outputs};
      row.inputs[i] = Partial(kind);
      rows->push_back(row);
    }
  }
}

int64_t dim_with(const Letters& letters, int16_t letter) {
  const auto found = std::find(letters.begin(), letters.end(), letter);
  return found == letters.end() ? -1 : found - letters.begin();
}

// The row that shards `letter` wherever it stands; outputs without it become `otherwise`.
Row row_of_letter(const Rule& rule, int16_t letter, const Placement& otherwise) {
  Row row = replicated_row(rule.input_letters.size(), rule.output_letters.size());
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const int64_t dim = dim_with(rule.input_letters[i], letter);
    if (dim >= 0) row.inputs[i] = Shard(dim);
  }
  for (size_t i = 0; i < row.outputs.size(); ++i) {
    const int64_t dim = dim_with(rule.output_letters[i], letter);
    row.outputs[i] = dim >= 0 ? Shard(dim) : otherwise;
  }
  return row;
}

Letters letters_upto(int64_t ndim) {
  Letters letters;
  for (int64_t d = 0; d < ndim; ++d) letters.push_back(static_cast<int16_t>(d + 1));
  return letters;
}

std::vector<bool> flags_of(int64_t ndim, std::span<const int64_t> dims) {
  std::vector<bool> flags(static_cast<size_t>(ndim), false);
  for (int64_t dim : dims) flags[static_cast<size_t>(normalize_dim(dim, ndim, "rule"))] = true;
  return flags;
}

std::vector<Letters> parse_operands(const std::string& text) {
  std::vector<Letters> operands(1);
  for (char c : text) {
    if (c == ',') {
      operands.emplace_back();
      continue;
    }
    if (c == ' ') continue;
    DTORCH_CHECK((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), "formula " + text);
    DTORCH_CHECK(dim_with(operands.back(), static_cast<int16_t>(c)) < 0,
                 "a letter stands twice in an operand of " + text);
    operands.back().push_back(static_cast<int16_t>(c));
  }
  return operands;
}

}  // namespace

Rule elementwise_rule(std::span<const Shape> inputs, const Shape& output, Linear linear, int num_outputs) {
  Rule rule;
  const int64_t ndim = output.ndim();
  for (const Shape& input : inputs) {
    DTORCH_CHECK(input.ndim() <= ndim, input.str() + " to " + output.str());
    Letters letters;
    for (int64_t d = 0; d < input.ndim(); ++d) {
      const int64_t out_dim = d + ndim - input.ndim();
      DTORCH_CHECK(input[d] == output[out_dim] || input[d] == 1, input.str() + " to " + output.str());
      letters.push_back(input[d] == output[out_dim] ? static_cast<int16_t>(out_dim + 1) : kNoLetter);
    }
    rule.input_letters.push_back(letters);
  }
  rule.output_letters.assign(static_cast<size_t>(num_outputs), letters_upto(ndim));
  rule.rows.push_back(replicated_row(inputs.size(), static_cast<size_t>(num_outputs)));
  for (int64_t d = 0; d < ndim; ++d) {
    const int16_t letter = static_cast<int16_t>(d + 1);
    const bool used = std::any_of(rule.input_letters.begin(), rule.input_letters.end(),
                                  [&](const Letters& letters) { return dim_with(letters, letter) >= 0; });
    if (used) rule.rows.push_back(row_of_letter(rule, letter, Replicate()));
  }
  add_linear_rows(linear, inputs.size(), static_cast<size_t>(num_outputs), &rule.rows);
  return rule;
}

Rule einsum_rule(const std::string& formula, bool linear) {
  const size_t arrow = formula.find("->");
  DTORCH_CHECK(arrow != std::string::npos, "formula " + formula);
  Rule rule;
  rule.input_letters = parse_operands(formula.substr(0, arrow));
  rule.output_letters = parse_operands(formula.substr(arrow + 2));
  std::vector<int16_t> order;  // of first appearance
  for (const Letters& letters : rule.input_letters) {
    for (int16_t letter : letters) {
      if (std::find(order.begin(), order.end(), letter) == order.end()) order.push_back(letter);
    }
  }
  for (const Letters& letters : rule.output_letters) {
    for (int16_t letter : letters) {
      DTORCH_CHECK(std::find(order.begin(), order.end(), letter) != order.end(), "formula " + formula);
    }
  }
  rule.rows.push_back(replicated_row(rule.input_letters.size(), rule.output_letters.size()));
  for (int16_t letter : order) rule.rows.push_back(row_of_letter(rule, letter, Partial(kSum)));
  if (linear) add_linear_rows(Linear::kInEach, rule.input_letters.size(), rule.output_letters.size(), &rule.rows);
  return rule;
}

Rule reduce_rule(int64_t ndim, std::span<const int64_t> dims, bool keepdim, std::optional<ReduceOp> reduce,
                 Linear linear) {
  const std::vector<bool> reduced = flags_of(ndim, dims);
  Rule rule;
  rule.input_letters.push_back(letters_upto(ndim));
  Letters output;
  for (int64_t d = 0; d < ndim; ++d) {
    if (!reduced[static_cast<size_t>(d)])
      output.push_back(static_cast<int16_t>(d + 1));
    else if (keepdim)
      output.push_back(kNoLetter);
  }
  rule.output_letters.push_back(output);
  rule.rows.push_back(replicated_row(1, 1));
  for (int64_t d = 0; d < ndim; ++d) {
    const bool is_reduced = reduced[static_cast<size_t>(d)];
    if (is_reduced && !reduce) continue;
    const Placement otherwise = is_reduced ? Partial(*reduce) : Replicate();
    rule.rows.push_back(row_of_letter(rule, static_cast<int16_t>(d + 1), otherwise));
  }
  add_linear_rows(linear, 1, 1, &rule.rows);
  return rule;
}

Rule pointwise_except_rule(int64_t ndim, std::span<const int64_t> blocked, Linear linear,
                           std::span<const Letters> extra_inputs) {
  const std::vector<bool> is_blocked = flags_of(ndim, blocked);
  Rule rule;
  rule.input_letters.push_back(letters_upto(ndim));
  rule.input_letters.insert(rule.input_letters.end(), extra_inputs.begin(), extra_inputs.end());
  rule.output_letters.push_back(letters_upto(ndim));
  rule.rows.push_back(replicated_row(rule.input_letters.size(), 1));
  for (int64_t d = 0; d < ndim; ++d) {
    if (is_blocked[static_cast<size_t>(d)]) continue;
    rule.rows.push_back(row_of_letter(rule, static_cast<int16_t>(d + 1), Replicate()));
  }
  add_linear_rows(linear, rule.input_letters.size(), 1, &rule.rows);
  return rule;
}

Rule permute_rule(std::span<const int64_t> perm) {
  const int64_t ndim = static_cast<int64_t>(perm.size());
  Rule rule;
  rule.input_letters.push_back(letters_upto(ndim));
  Letters output;
  for (int64_t dim : perm) output.push_back(static_cast<int16_t>(normalize_dim(dim, ndim, "permute") + 1));
  rule.output_letters.push_back(output);
  rule.rows.push_back(replicated_row(1, 1));
  for (int64_t d = 0; d < ndim; ++d) {
    const int16_t letter = static_cast<int16_t>(d + 1);
    DTORCH_CHECK(dim_with(output, letter) >= 0, "not a permutation");
    rule.rows.push_back(row_of_letter(rule, letter, Replicate()));
  }
  for (ReduceOp kind : {kSum, kAvg, kMax, kMin}) rule.rows.push_back({{Partial(kind)}, {Partial(kind)}});
  return rule;
}

}  // namespace dtorch
