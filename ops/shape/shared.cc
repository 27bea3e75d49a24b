// Rules that the shape operators share, and the room's list.
#include "ops/move/combine.h"
#include "ops/shape/composed.h"

namespace dtorch {

std::vector<OperatorDef*> shape_operators() {
  std::vector<OperatorDef*> operators = {&reshape_op, &permute_op,    &unsqueeze_op, &squeeze_op,
                                         &expand_op,  &contiguous_op, &slice_op,     &slice_gradient_op,
                                         &cat_op,     &split_op,      &chunk_op};
  for (OperatorDef* op : rearranging_operators()) operators.push_back(op);
  return operators;
}

namespace shaping {
namespace {

void add_partial_rows(size_t num_inputs, size_t num_outputs, Rule* rule) {
  for (ReduceOp kind : {kSum, kAvg, kMax, kMin}) {
    rule->rows.push_back(
        {std::vector<Placement>(num_inputs, Partial(kind)), std::vector<Placement>(num_outputs, Partial(kind))});
  }
}

}  // namespace

Rule dim_map_rule(int64_t input_ndim, std::span<const int64_t> from) {
  Rule rule;
  rule.input_letters.emplace_back();
  rule.output_letters.emplace_back();
  for (int64_t d = 0; d < input_ndim; ++d) rule.input_letters[0].push_back(static_cast<int16_t>(d + 1));
  for (size_t d = 0; d < from.size(); ++d) {
    rule.output_letters[0].push_back(from[d] < 0 ? kNoLetter : static_cast<int16_t>(from[d] + 1));
    if (from[d] >= 0) rule.rows.push_back({{Shard(from[d])}, {Shard(static_cast<int64_t>(d))}});
  }
  add_partial_rows(1, 1, &rule);
  return rule;
}

Rule all_but_one_rule(int64_t ndim, int64_t blocked, size_t num_inputs, size_t num_outputs) {
  Rule rule;
  Letters letters;
  for (int64_t d = 0; d < ndim; ++d) {
    letters.push_back(d == blocked ? kNoLetter : static_cast<int16_t>(d + 1));
    if (d == blocked) continue;
    rule.rows.push_back({std::vector<Placement>(num_inputs, Shard(d)), std::vector<Placement>(num_outputs, Shard(d))});
  }
  rule.input_letters.assign(num_inputs, letters);
  rule.output_letters.assign(num_outputs, letters);
  add_partial_rows(num_inputs, num_outputs, &rule);
  return rule;
}

Tensor gather_dim(const char* op, const Tensor& x, int64_t dim, const Where& where) {
  const Layout layout = unsharded_layout(x, dim);
  require_implicit_redistribution(op, x, layout, where);
  return layout == x.layout() ? x : x.redistribute(layout, where);
}

}  // namespace shaping
}  // namespace dtorch
