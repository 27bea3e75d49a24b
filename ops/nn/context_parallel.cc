// Attention over a sequence that is split over devices.
// Axes named ulysses_cp: an all-to-all brings whole sequences of some heads to each device, and back after attention.
// An axis named ring_cp: blocks of keys and values travel from device to device (ring_attention.h).
// Jacobs et al. 2023 for the former.
#include "ops/nn/context_parallel.h"

#include <algorithm>
#include <optional>

#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "ops/nn/ring_attention.h"
#include "runtime/client/graph.h"

namespace dtorch::nn_ops {
namespace {

constexpr int64_t kHeadDim = 1, kSequenceDim = 2;

bool is_ulysses(const std::string& name) { return name == "ulysses_cp" || name == "ulysess_cp"; }
bool is_ring(const std::string& name) { return name == "ring_cp"; }

// Axes of that kind which split the sequence.
template <class Kind>
std::vector<int64_t> sequence_axes(const Tensor& x, Kind&& kind) {
  std::vector<int64_t> axes;
  const std::vector<std::string>& names = x.mesh().axis_names();
  for (size_t axis = 0; axis < names.size(); ++axis) {
    if (kind(names[axis]) && x.placements()[static_cast<int64_t>(axis)].is_shard(kSequenceDim))
      axes.push_back(static_cast<int64_t>(axis));
  }
  return axes;
}

Tensor with_placement(const Tensor& x, const std::vector<int64_t>& axes, const Placement& placement,
                      const Where& where) {
  Placements target = x.placements();
  for (int64_t axis : axes) target[axis] = placement;
  return x.redistribute(target, where);
}

int64_t head_parts(const Tensor& x) {
  int64_t parts = 1;
  for (int8_t axis : x.layout().axes_of_dim(kHeadDim)) parts *= x.mesh().shape()[axis];
  return parts;
}

// How keys and values must lie for a ring over `ring`: on the other axes split as the queries are. Nothing where one of
// the three would have to be moved for that, or is pending: the steps of a ring know no rules of placements.
std::optional<Layout> key_layout(const Tensor& q, const Tensor& k, const Tensor& v, int64_t ring, bool same_groups) {
  Placements target = k.placements();
  for (int64_t axis = 0; axis < target.size(); ++axis) {
    const Placement& of_q = q.placements()[axis];
    Placement& needed = target[axis];
    needed = axis == ring || of_q.is_shard(0) || (of_q.is_shard(kHeadDim) && same_groups) ? of_q : Replicate();
    const bool known = of_q.is_replicate() || of_q.is_shard(0) || of_q.is_shard(kHeadDim) || axis == ring;
    const auto fits = [&](const Tensor& x) {
      const Placement& there = x.placements()[axis];
      return axis == ring || there == needed || there.is_replicate();
    };
    if (!known || !fits(k) || !fits(v)) return {};
  }
  return Layout(q.mesh(), target, k.ndim(), q.layout().shard_order());
}

}  // namespace

bool is_context_parallel(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.ndim() != 4 || !(k.mesh() == q.mesh()) || !(v.mesh() == q.mesh())) return false;
  const auto either = [](const std::string& name) { return is_ulysses(name) || is_ring(name); };
  return !sequence_axes(q, either).empty();
}

Tensor context_parallel_attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, bool is_causal,
                                  double scale, RingOrder order, const Where& where) {
  SourceScope scope(where);
  const std::vector<int64_t> ulysses = sequence_axes(q_in, is_ulysses);
  require_implicit_redistribution("scaled_dot_product_attention", q_in, unsharded_layout(q_in, kSequenceDim), where);
  Tensor q = with_placement(q_in, ulysses, Shard(kHeadDim), where);
  // Key/value heads pair with query heads where both can be split on the same groups; else every device gets all of
  // them.
  const int64_t heads = k_in.shape()[kHeadDim];
  const bool same_groups = heads == q.shape()[kHeadDim] || heads % head_parts(q) == 0;
  const auto exchanged = [&](const Tensor& x) {
    return same_groups
               ? with_placement(x, ulysses, Shard(kHeadDim), where)
               : with_placement(x.redistribute(unsharded_layout(x, kHeadDim), where), ulysses, Replicate(), where);
  };
  Tensor k = exchanged(k_in), v = exchanged(v_in);
  std::vector<int64_t> ring = sequence_axes(q, is_ring);
  // Blocks of keys line up with blocks of queries only where both sequences are equally long.
  const bool lines_up = ring.size() == 1 && q.layout().axes_of_dim(kSequenceDim).size() == 1 &&
                        (!is_causal || k.shape()[kSequenceDim] == q.shape()[kSequenceDim]);
  const std::optional<Layout> keys = lines_up ? key_layout(q, k, v, ring[0], same_groups) : std::nullopt;
  Tensor out;
  if (keys) {
    out = ring_attention(q, k.redistribute(*keys, where), v.redistribute(*keys, where),
                         {ring[0], is_causal, scale, order}, where);
  } else {
    q = with_placement(q, ring, Replicate(), where);
    k = with_placement(k, ring, Replicate(), where);
    v = with_placement(v, ring, Replicate(), where);
    out = scaled_dot_product_attention(q, k, v, {.is_causal = is_causal, .scale = scale}, where);
  }
  return out.redistribute(q_in.layout(), where);
}

}  // namespace dtorch::nn_ops
