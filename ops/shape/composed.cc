// Rules, gathering and sharding again that the rearranging operators share.
#include "ops/shape/composed.h"

#include <algorithm>

#include "ops/move/combine.h"

namespace dtorch::shaping {

std::vector<int64_t> distinct_dims(const char* op, const std::vector<int64_t>& dims, int64_t ndim, const Where& where) {
  std::vector<int64_t> normalized;
  for (int64_t dim : dims) normalized.push_back(normalize_dim(dim, ndim, op, where));
  std::ranges::sort(normalized);
  const auto twice = std::ranges::adjacent_find(normalized);
  if (twice != normalized.end()) {
    throw at_line(ShapeError("[" + std::string(op) + "] dim " + std::to_string(*twice) + " stands twice"), where);
  }
  return normalized;
}

Rule keeping_rule(int64_t ndim, std::span<const int64_t> blocked) {
  std::vector<int64_t> from;
  for (int64_t d = 0; d < ndim; ++d) from.push_back(std::ranges::count(blocked, d) > 0 ? -1 : d);
  return dim_map_rule(ndim, from);
}

Rule without_extremes(Rule rule) {
  std::erase_if(rule.rows, [](const Row& row) {
    return std::ranges::any_of(row.inputs, [](const Placement& p) { return p.is_partial(kMax) || p.is_partial(kMin); });
  });
  return rule;
}

Tensor gather_dims(const char* op, const Tensor& x, std::span<const int64_t> dims, const Where& where) {
  Placements placements = x.placements();
  for (Placement& placement : placements) {
    if (placement.is_shard() && std::ranges::count(dims, placement.dim) > 0) placement = Replicate();
  }
  const Layout layout = x.layout().with_placements(placements, x.ndim());
  require_implicit_redistribution(op, x, layout, where);
  return layout == x.layout() ? x : x.redistribute(layout, where);
}

Tensor shard_as(const Tensor& x, const Tensor& result, const Where& where, std::span<const int64_t> to) {
  Placements placements = result.placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    const Placement& before = x.layout().placement(axis);
    if (!before.is_shard() || !placements[axis].is_replicate()) continue;
    const int64_t dim = to.empty() ? before.dim : to[static_cast<size_t>(before.dim)];
    if (dim >= 0) placements[axis] = Shard(dim);
  }
  if (placements == result.placements()) return result;
  return result.redistribute(Layout(result.mesh(), placements, result.ndim(), x.layout().shard_order()), where);
}

}  // namespace dtorch::shaping
