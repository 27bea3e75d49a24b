// Experts and tokens split over one axis: a token's row travels to the parts of the experts that it chose, and what
// they give travels back (Lepikhin et al. 2021), both by an all-to-all whose sizes are data. In between the rows are
// ragged (ops/def/row_exchange.h): shapes outside are static, and only the workers know how many rows there are.
//
//   tokens -- moe_dispatch --> rows by part -- exchange --> rows of a part -- moe_experts_rows --> rows of a part
//   y <-- moe_combine -- rows by part <-- exchange --
//
// Backward goes the same ways: the gradient of y as tokens do, those of the rows as what the experts gave.
#include <optional>

#include "ops/move/exchange_rows.h"
#include "ops/nn/moe.h"
#include "ops/nn/moe_local.h"
#include "ops/nn/moe_rows.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch {
namespace {

using nn_ops::MoeRowsAttrs;

// Axes over which experts are split must see every token: x becomes Replicate there.
Tensor gathered_for_experts(const Tensor& x, const Tensor& w1, const Where& where) {
  Placements target = x.placements();
  for (int64_t axis = 0; axis < target.size(); ++axis) {
    if (w1.placements()[axis].is_shard(0)) target[axis] = Replicate();
  }
  return x.redistribute(x.layout().with_placements(target, x.ndim()), where);
}

// Back from the experts: on their axes what is pending becomes the tokens' own placement.
Tensor returned_to_tokens(const Tensor& y, const Tensor& x, const Tensor& w1, const Where& where) {
  Placements target = y.placements();
  for (int64_t axis = 0; axis < target.size(); ++axis) {
    if (w1.placements()[axis].is_shard(0)) target[axis] = x.placements()[axis];
  }
  return y.redistribute(x.layout().with_placements(target, y.ndim()), where);
}

bool splits_tokens(const Tensor& x, int64_t axis) {
  const Placement& there = x.placements()[axis];
  return there.is_shard() && !there.is_shard(x.ndim() - 1);
}

// The axis that rows travel along: the only one that splits experts, where it splits tokens too and on every other axis
// the tokens are split, or the experts' inner dim, or nothing is.
std::optional<int64_t> exchange_axis_of(const Tensor& x, const Tensor& w1, const Tensor& w3, const Tensor& w2) {
  std::optional<int64_t> found;
  if (!(w1.mesh() == x.mesh() && w3.mesh() == x.mesh() && w2.mesh() == x.mesh())) return {};
  for (int64_t axis = 0; axis < x.mesh().num_axes(); ++axis) {
    const Placement &a = w1.placements()[axis], &b = w3.placements()[axis], &c = w2.placements()[axis];
    if (a.is_shard(0) && b.is_shard(0) && c.is_shard(0)) {
      if (found || !splits_tokens(x, axis)) return {};
      found = axis;
      continue;
    }
    const bool is_whole = a.is_replicate() && b.is_replicate() && c.is_replicate();
    const bool splits_inner = a.is_shard(1) && b.is_shard(1) && c.is_shard(2);
    const bool known =
        x.placements()[axis].is_replicate() ? is_whole || splits_inner : splits_tokens(x, axis) && is_whole;
    if (!known) return {};
  }
  return found;
}

class ExpertParallel {
 public:
  ExpertParallel(const Tensor& x, int64_t axis, const Tensor& w1, const Where& where)
      : axis_(axis),
        parts_(x.mesh().shape()[axis]),
        token_dim_(x.placements()[axis].dim),
        x_layout_(x.layout()),
        y_placements_(x.placements()),
        where_(where) {
    for (int64_t a = 0; a < y_placements_.size(); ++a) {
      if (w1.placements()[a].is_shard(1)) y_placements_[a] = Partial();
    }
  }

  // (rows at their experts, how many came from each position).
  RaggedRows to_experts(const Tensor& x, const Tensor& gates, bool with_gates) const {
    const Layout layouts[] = {rows_layout(x), counts_layout()};
    auto [rows, counts] = record_many<2>(moe_dispatch_op, MoeRowsAttrs{parts_, with_gates}, {&x, &gates}, where_,
                                         {.output_layouts = layouts});
    return exchange_rows({rows, counts}, axis_, 0, where_);
  }

  // What the rows bring home: y, or the gradients of x and gates.
  std::vector<Tensor> to_tokens(const RaggedRows& at_experts, const Tensor& gates, bool with_gates) const {
    const RaggedRows home = exchange_rows(at_experts, axis_, token_dim_ + 1, where_);
    Placements placements = y_placements_;
    for (int64_t a = 0; a < placements.size(); ++a) {
      if (!home.rows.placements()[a].is_partial() && placements[a].is_partial()) placements[a] = Replicate();
    }
    const Layout layout(x_layout_.mesh(), placements, gates.ndim(), x_layout_.shard_order());
    const std::vector<Layout> layouts(with_gates ? 2 : 1, layout);
    return record_list(moe_combine_op, MoeRowsAttrs{parts_, with_gates}, {home.rows, gates}, layouts.size(), where_,
                       {.output_layouts = layouts});
  }

  // Of the experts' results, where rows lie as `rows`.
  Layout results_layout(const Tensor& rows) const {
    Placements placements = rows.placements();
    for (int64_t a = 0; a < placements.size(); ++a) {
      if (y_placements_[a].is_partial()) placements[a] = Partial();
    }
    return Layout(rows.mesh(), placements, rows.ndim(), rows.layout().shard_order());
  }
  Layout gradient_layout() const { return x_layout_; }

 private:
  // Of [P, ..., W] for tokens x.
  static Layout rows_layout(const Tensor& x) {
    Placements placements = x.placements();
    for (Placement& placement : placements) {
      if (placement.is_shard()) placement = Shard(placement.dim + 1);
    }
    return Layout(x.mesh(), placements, x.ndim() + 1, x.layout().shard_order());
  }
  Layout counts_layout() const {
    return Layout(x_layout_.mesh(), Placements(x_layout_.mesh().num_axes(), Shard(0)), 2);
  }
  int64_t axis_, parts_, token_dim_;
  Layout x_layout_;
  Placements y_placements_;
  Where where_;
};

Tensor exchanged(const Tensor& x, const Tensor& gates_in, const Tensor& w1, const Tensor& w3, const Tensor& w2,
                 int64_t axis, const Where& where) {
  const ExpertParallel exchange(x, axis, w1, where);
  const Tensor gates = gates_in.redistribute(x.layout(), where);
  const Tensor gate_values = gates.detach();
  RaggedRows at_experts;
  {
    NoGrad no_grad;
    at_experts = exchange.to_experts(x.detach(), gate_values, true);
  }
  const Tensor counts = at_experts.counts;
  const Tensor sent[] = {x, gates};
  set_custom_gradient(
      "expert_dispatch", sent, {&at_experts.rows, 1},
      [exchange, gate_values, counts](const GradientContext& context) {
        return exchange.to_tokens({context.grad_output(0), counts}, gate_values, true);
      },
      where);
  const Layout layouts[] = {exchange.results_layout(at_experts.rows)};
  const Tensor results =
      record(moe_experts_rows_op, NoAttrs{}, {&at_experts.rows, &w1, &w3, &w2}, where, {.output_layouts = layouts});
  Tensor y;
  {
    NoGrad no_grad;
    y = exchange.to_tokens({results.detach(), counts}, gate_values, false)[0];
  }
  set_custom_gradient(
      "expert_combine", {&results, 1}, {&y, 1},
      [exchange, gate_values](const GradientContext& context) {
        const Tensor g = context.grad_output(0).redistribute(exchange.gradient_layout());
        return std::vector<Tensor>{exchange.to_experts(g, gate_values, false).rows};
      },
      where);
  return y;
}

}  // namespace

Tensor expert_parallel(const Tensor& x, const Tensor& gates, const Tensor& w1, const Tensor& w3, const Tensor& w2,
                       Where where) {
  SourceScope scope(where);
  const TensorMeta* const inputs[] = {&x.meta(), &gates.meta(), &w1.meta(), &w3.meta(), &w2.meta()};
  try {
    moe::check_operands({"expert_parallel", inputs, nullptr}, 0);
  } catch (const ShapeError& error) {
    throw at_line(error, where);
  } catch (const DTypeError& error) {
    throw at_line(error, where);
  }
  if (const std::optional<int64_t> axis = exchange_axis_of(x, w1, w3, w2))
    return exchanged(x, gates, w1, w3, w2, *axis, where);
  const Tensor y =
      moe_experts(gathered_for_experts(x, w1, where), gathered_for_experts(gates, w1, where), w1, w3, w2, where);
  return returned_to_tokens(y, x, w1, where);
}

}  // namespace dtorch
