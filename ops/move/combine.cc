#include "ops/move/combine.h"

#include "runtime/client/graph_core.h"
#include "runtime/client/placement_error.h"

namespace dtorch {

void require_implicit_redistribution(const char* op, const Tensor& x, const Layout& fix, const Where& where) {
  if (fix == x.layout() || implicit_redistribution_allowed()) return;
  MatchFailure failure;
  failure.axis = 0;
  while (x.layout().placement(failure.axis) == fix.placement(failure.axis)) ++failure.axis;
  failure.reason = "it combines what devices hold, and implicit redistribution is off";
  failure.legal_rows = {"(" + fix.placement(failure.axis).str() + ")"};
  failure.fix = {{0, fix}};
  throw PlacementError(op, {{x.shape(), x.dtype(), x.mesh(), x.layout()}}, std::move(failure), source_line(where));
}

Tensor reduce_pending(const char* op, const Tensor& x, std::optional<ReduceOp> kept, const Where& where) {
  Placements placements = x.placements();
  for (Placement& placement : placements) {
    if (placement.is_partial() && placement.reduce != kept) placement = Replicate();
  }
  const Layout layout = x.layout().with_placements(placements, x.ndim());
  if (layout == x.layout()) return x;
  require_implicit_redistribution(op, x, layout, where);
  return x.redistribute(layout, where);
}

Layout unsharded_layout(const Tensor& x, std::optional<int64_t> dim) {
  Placements placements = x.placements();
  for (Placement& placement : placements) {
    if (dim ? placement.is_shard(*dim) : placement.is_shard()) placement = Replicate();
  }
  return x.layout().with_placements(placements, x.ndim());
}

}  // namespace dtorch
