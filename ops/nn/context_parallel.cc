// Attention over a sequence that is split over devices.
// Axes named ulysses_cp: an all-to-all brings whole sequences of some heads to each device, and back after attention.
// An axis named ring_cp: blocks of keys and values travel from device to device; while one is computed the next one is
// on its way, and a device holds two blocks at most. Backward likewise, the blocks' gradients travelling with them
// (Liu, Zaharia, Abbeel 2023; Jacobs et al. 2023).
#include "ops/nn/context_parallel.h"

#include <algorithm>
#include <array>
#include <optional>

#include "ops/math/functions.h"
#include "ops/move/combine.h"
#include "ops/nn/operators.h"
#include "ops/nn/ring_step.h"
#include "runtime/client/gradient.h"
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

// The mesh on which the device at position i of the axis holds what position i - steps holds on `mesh`.
DeviceMesh rotated(const DeviceMesh& mesh, int64_t axis, int64_t steps) {
  std::vector<int64_t> devices(mesh.devices().size());
  const int64_t size = mesh.shape()[axis];
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    Shape from = mesh.coordinate_of_index(index);
    from[axis] = (from[axis] + steps) % size;
    devices[static_cast<size_t>(index)] = mesh.devices()[static_cast<size_t>(mesh.index_of_coordinate(from))];
  }
  return DeviceMesh(mesh.kind(), mesh.shape(), devices, mesh.axis_names());
}

// Of k's gradient: pending where devices have the same keys for different query heads.
Placements gradient_placements(const Tensor& q, const Tensor& k) {
  Placements placements = k.placements();
  for (int64_t axis = 0; axis < placements.size(); ++axis) {
    if (q.placements()[axis].is_shard(kHeadDim) && placements[axis].is_replicate()) placements[axis] = Partial();
  }
  return placements;
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

class Ring {
 public:
  Ring(const Tensor& q, const Tensor& k, int64_t axis, const RingAttrs& attributes, const Where& where)
      : attributes_(attributes), where_(where), size_(q.mesh().shape()[axis]), q_layout_(q.layout()) {
    for (int64_t step = 0; step <= size_; ++step) {
      const DeviceMesh mesh = rotated(q.mesh(), axis, step);
      block_layouts_.push_back(Layout(mesh, k.placements(), k.ndim(), k.layout().shard_order()));
      gradient_layouts_.push_back(Layout(mesh, gradient_placements(q, k), k.ndim(), k.layout().shard_order()));
    }
    Placements of_rows = q.placements();
    row_layout_ = Layout(q.mesh(), of_rows, 3, q.layout().shard_order());
  }

  // (out in the dtype of q, log-sum-exp of every row).
  std::array<Tensor, 2> forward(const Tensor& q, Tensor k, Tensor v) const {
    Tensor sum, lse;
    const Layout layouts[] = {q_layout_, row_layout_};
    for (int64_t step = 0; step < size_; ++step) {
      Tensor next_k, next_v;
      if (step + 1 < size_) {  // on its way while this block is computed
        next_k = k.redistribute(block_layouts_[static_cast<size_t>(step + 1)], where_);
        next_v = v.redistribute(block_layouts_[static_cast<size_t>(step + 1)], where_);
      }
      std::vector<Tensor> inputs = {q, k, v};
      if (step > 0) {
        inputs.push_back(std::move(sum));
        inputs.push_back(std::move(lse));
      }
      std::vector<Tensor> outputs =
          record_list(ring_attention_step_op, attributes_, inputs, 2, where_, {.output_layouts = layouts});
      sum = std::move(outputs[0]);
      lse = std::move(outputs[1]);
      k = std::move(next_k);
      v = std::move(next_v);
    }
    return {to(sum, q.dtype(), where_), lse};
  }

  // (dq, dk, dv) in the dtype of q.
  std::vector<Tensor> backward(const Tensor& g, const Tensor& q, Tensor k, Tensor v, const Tensor& out,
                               const Tensor& lse) const {
    Tensor dq, dk, dv;
    for (int64_t step = 0; step < size_; ++step) {
      const auto here = static_cast<size_t>(step);
      Tensor next_k, next_v;
      if (step + 1 < size_) {
        next_k = k.redistribute(block_layouts_[here + 1], where_);
        next_v = v.redistribute(block_layouts_[here + 1], where_);
      }
      std::vector<Tensor> inputs = {g, q, k, v, out, lse};
      if (step > 0) {
        for (Tensor* sum : {&dq, &dk, &dv}) inputs.push_back(std::move(*sum));
      }
      const Layout layouts[] = {q_layout_, gradient_layouts_[here], gradient_layouts_[here]};
      std::vector<Tensor> outputs =
          record_list(ring_attention_grad_step_op, attributes_, inputs, 3, where_, {.output_layouts = layouts});
      dq = std::move(outputs[0]);
      // After the last step this brings them home.
      dk = outputs[1].redistribute(gradient_layouts_[here + 1], where_);
      dv = outputs[2].redistribute(gradient_layouts_[here + 1], where_);
      k = std::move(next_k);
      v = std::move(next_v);
    }
    return {to(dq, q.dtype(), where_), to(dk, q.dtype(), where_), to(dv, q.dtype(), where_)};
  }

 private:
  const RingAttrs attributes_;
  const Where where_;
  const int64_t size_;
  const Layout q_layout_;
  Layout row_layout_;                                     // of one number a row of q
  std::vector<Layout> block_layouts_, gradient_layouts_;  // of k and v after so many steps, and of their gradients
};

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t axis, const RingAttrs& attributes,
                      const Where& where) {
  const Ring ring(q, k, axis, attributes, where);
  const Tensor q_value = q.detach(), k_value = k.detach(), v_value = v.detach();
  Tensor out, lse;
  {
    NoGrad no_grad;
    std::array<Tensor, 2> both = ring.forward(q_value, k_value, v_value);
    out = both[0];
    lse = both[1];
  }
  const Tensor inputs[] = {q, k, v};
  const Tensor out_value = out;
  set_custom_gradient(
      "ring_attention", inputs, {&out, 1},
      [ring, q_value, k_value, v_value, out_value, lse](const GradientContext& context) {
        const Tensor g = context.grad_output(0).redistribute(q_value.layout());
        return ring.backward(g, q_value, k_value, v_value, out_value, lse);
      },
      where);
  return out;
}

}  // namespace

bool is_context_parallel(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.ndim() != 4 || !(k.mesh() == q.mesh()) || !(v.mesh() == q.mesh())) return false;
  const auto either = [](const std::string& name) { return is_ulysses(name) || is_ring(name); };
  return !sequence_axes(q, either).empty();
}

Tensor context_parallel_attention(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, bool is_causal,
                                  double scale, const Where& where) {
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
    out = ring_attention(q, k.redistribute(*keys, where), v.redistribute(*keys, where), ring[0], {is_causal, scale},
                         where);
  } else {
    q = with_placement(q, ring, Replicate(), where);
    k = with_placement(k, ring, Replicate(), where);
    v = with_placement(v, ring, Replicate(), where);
    out = scaled_dot_product_attention(q, k, v, {.is_causal = is_causal, .scale = scale}, where);
  }
  return out.redistribute(q_in.layout(), where);
}

}  // namespace dtorch::nn_ops
