// While a piece of keys and values is computed the next one is on its way, so that a device holds two blocks at most;
// backward likewise, the gradients of keys travelling with them. A ring is a sequence of meshes: after each step the
// keys are on one whose devices are permuted along the axis, so layouts stay honest and a step's transfer is an
// ordinary redistribute. In the balanced order (ring_plan.h) so are the exchanges before and after: pieces of rows go
// to the mesh of their homes and back. Nothing of it is kept for backward, which exchanges again: memory is what a ring
// is for.
#include "ops/nn/ring_attention.h"

#include "ops/math/functions.h"
#include "ops/nn/operators.h"
#include "ops/nn/ring_plan.h"
#include "ops/nn/ring_step.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn_ops {
namespace {

constexpr int64_t kHeadDim = 1, kSequenceDim = 2;
// From here on the balanced order's exchanges cost less than what the last device would have too much of: half of
// T^2 / size scores a head, against 4 T / size rows. Both grow with the width of a head, so that a length decides.
constexpr int64_t kBalancedTokens = 1024;

// Pieces of a tensor's rows, in the order of RingPlan: one, or two.
using Pieces = std::vector<Tensor>;

class Ring {
 public:
  Ring(const Tensor& q, const Tensor& k, const RingCall& call, const Where& where)
      : call_(call),
        where_(where),
        plan_(q.mesh().shape()[call.axis], is_balanced(q, call)),
        q_layout_(q.layout()),
        k_layout_(k.layout()),
        dk_layout_(Layout(k.mesh(), gradient_placements(q, k), k.ndim(), k.layout().shard_order())) {}

  const Layout& q_layout() const { return q_layout_; }

  struct Forward {
    Tensor out;   // in the dtype of q
    Pieces lses;  // log-sum-exp of every row
  };
  Forward forward(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in) const;
  // (dq, dk, dv) in the dtype of q.
  std::vector<Tensor> backward(const Tensor& g, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                               const Pieces& lses) const;

 private:
  static bool is_balanced(const Tensor& q, const RingCall& call) {
    if (!call.is_causal || q.mesh().shape()[call.axis] == 1) return false;
    return call.order == RingOrder::kBalanced ||
           (call.order == RingOrder::kAuto && q.shape()[kSequenceDim] >= kBalancedTokens);
  }
  // Pending where devices have the same keys for different query heads.
  static Placements gradient_placements(const Tensor& q, const Tensor& k) {
    Placements placements = k.placements();
    for (int64_t axis = 0; axis < placements.size(); ++axis) {
      if (q.placements()[axis].is_shard(kHeadDim) && placements[axis].is_replicate()) placements[axis] = Partial();
    }
    return placements;
  }
  size_t pieces() const { return static_cast<size_t>(plan_.pieces()); }
  // A layout moved to the devices that have a piece at a step.
  Layout at_step(const Layout& layout, size_t piece, int64_t step) const;
  Pieces taken_apart(const Tensor& x) const;
  Tensor put_together(const Pieces& pieces, const Layout& layout) const;
  RingAttrs attributes(size_t q_piece, size_t k_piece) const {
    return {call_.is_causal,
            call_.scale,
            call_.axis,
            plan_.pieces(),
            static_cast<int64_t>(q_piece),
            static_cast<int64_t>(k_piece)};
  }

  const RingCall call_;
  const Where where_;
  const RingPlan plan_;
  const Layout q_layout_, k_layout_, dk_layout_;
};

Layout Ring::at_step(const Layout& layout, size_t piece, int64_t step) const {
  const DeviceMesh& mesh = layout.mesh();
  std::vector<int64_t> devices(mesh.devices().size());
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    Shape at = mesh.coordinate_of_index(index);
    at[call_.axis] = plan_.holder(at[call_.axis], static_cast<int64_t>(piece), step);
    devices[static_cast<size_t>(index)] = mesh.devices()[static_cast<size_t>(mesh.index_of_coordinate(at))];
  }
  return Layout(DeviceMesh(mesh.kind(), mesh.shape(), devices, mesh.axis_names()), layout.placements(),
                kSequenceDim + 2, layout.shard_order());
}

// The pieces at their homes.
Pieces Ring::taken_apart(const Tensor& x) const {
  if (pieces() == 1) return {x};
  const Layout layouts[] = {x.layout(), x.layout()};
  auto [first, second] =
      record_many<2>(ring_split_op, RingSplitAttrs{plan_.size()}, {&x}, where_, {.output_layouts = layouts});
  return {first.redistribute(at_step(x.layout(), 0, 0), where_),
          second.redistribute(at_step(x.layout(), 1, 0), where_)};
}

// Pieces from wherever they are to their block's device; layout: of the whole.
Tensor Ring::put_together(const Pieces& pieces, const Layout& layout) const {
  if (pieces.size() == 1) return pieces[0].redistribute(layout, where_);
  const Tensor first = pieces[0].redistribute(layout, where_), second = pieces[1].redistribute(layout, where_);
  return record(ring_join_op, NoAttrs{}, {&first, &second}, where_, {.output_layouts = {&layout, 1}});
}

Ring::Forward Ring::forward(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in) const {
  const Pieces q = taken_apart(q_in);
  Pieces k = taken_apart(k_in), v = taken_apart(v_in), sums(pieces()), lses(pieces());
  for (int64_t step = 0; step < plan_.size(); ++step) {
    for (size_t of_k = 0; of_k < pieces(); ++of_k) {
      Tensor next_k, next_v;
      if (step + 1 < plan_.size()) {  // on its way while this piece is computed
        const Layout next = at_step(k_layout_, of_k, step + 1);
        next_k = k[of_k].redistribute(next, where_);
        next_v = v[of_k].redistribute(next, where_);
      }
      for (size_t of_q = 0; of_q < pieces(); ++of_q) {
        RingAttrs how = attributes(of_q, of_k);
        how.has_sum = sums[of_q].defined();
        std::vector<Tensor> inputs = {q[of_q], k[of_k], v[of_k]};
        if (how.has_sum) {
          inputs.push_back(std::move(sums[of_q]));
          inputs.push_back(std::move(lses[of_q]));
        }
        const Layout& rows = q[of_q].layout();
        const Layout layouts[] = {rows, Layout(rows.mesh(), rows.placements(), 3, rows.shard_order())};
        std::vector<Tensor> outputs =
            record_list(ring_attention_step_op, how, inputs, 2, where_, {.output_layouts = layouts});
        sums[of_q] = std::move(outputs[0]);
        lses[of_q] = std::move(outputs[1]);
      }
      k[of_k] = std::move(next_k);
      v[of_k] = std::move(next_v);
    }
  }
  for (Tensor& sum : sums) sum = to(sum, q_in.dtype(), where_);
  return {put_together(sums, q_layout_), lses};
}

std::vector<Tensor> Ring::backward(const Tensor& g_in, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                                   const Tensor& out_in, const Pieces& lses) const {
  const Pieces q = taken_apart(q_in), g = taken_apart(g_in), out = taken_apart(out_in);
  Pieces k = taken_apart(k_in), v = taken_apart(v_in), dq(pieces()), dk(pieces()), dv(pieces());
  for (int64_t step = 0; step < plan_.size(); ++step) {
    for (size_t of_k = 0; of_k < pieces(); ++of_k) {
      Tensor next_k, next_v;
      if (step + 1 < plan_.size()) {
        const Layout next = at_step(k_layout_, of_k, step + 1);
        next_k = k[of_k].redistribute(next, where_);
        next_v = v[of_k].redistribute(next, where_);
      }
      const Layout of_dk = at_step(dk_layout_, of_k, step);
      for (size_t of_q = 0; of_q < pieces(); ++of_q) {
        RingAttrs how = attributes(of_q, of_k);
        how.has_sum = dq[of_q].defined();
        how.has_key_gradients = dk[of_k].defined();
        std::vector<Tensor> inputs = {g[of_q], q[of_q], k[of_k], v[of_k], out[of_q], lses[of_q]};
        if (how.has_sum) inputs.push_back(std::move(dq[of_q]));
        if (how.has_key_gradients) {
          inputs.push_back(std::move(dk[of_k]));
          inputs.push_back(std::move(dv[of_k]));
        }
        const Layout layouts[] = {q[of_q].layout(), of_dk, of_dk};
        std::vector<Tensor> outputs =
            record_list(ring_attention_grad_step_op, how, inputs, 3, where_, {.output_layouts = layouts});
        dq[of_q] = std::move(outputs[0]);
        dk[of_k] = std::move(outputs[1]);
        dv[of_k] = std::move(outputs[2]);
      }
      // Along with their keys; from the last step home, below.
      if (step + 1 < plan_.size()) {
        const Layout next = at_step(dk_layout_, of_k, step + 1);
        dk[of_k] = dk[of_k].redistribute(next, where_);
        dv[of_k] = dv[of_k].redistribute(next, where_);
      }
      k[of_k] = std::move(next_k);
      v[of_k] = std::move(next_v);
    }
  }
  const auto narrow = [&](const Tensor& x) { return to(x, q_in.dtype(), where_); };
  for (Pieces* all : {&dq, &dk, &dv}) {
    for (Tensor& piece : *all) piece = narrow(piece);
  }
  return {put_together(dq, q_layout_), put_together(dk, dk_layout_), put_together(dv, dk_layout_)};
}

}  // namespace

Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const RingCall& call, const Where& where) {
  const Ring ring(q, k, call, where);
  const Tensor q_value = q.detach(), k_value = k.detach(), v_value = v.detach();
  Ring::Forward result;
  {
    NoGrad no_grad;
    result = ring.forward(q_value, k_value, v_value);
  }
  const Tensor inputs[] = {q, k, v}, out_value = result.out;
  set_custom_gradient(
      "ring_attention", inputs, {&result.out, 1},
      [ring, q_value, k_value, v_value, out_value, lses = result.lses](const GradientContext& context) {
        const Tensor g = context.grad_output(0).redistribute(ring.q_layout());
        return ring.backward(g, q_value, k_value, v_value, out_value, lses);
      },
      where);
  return result.out;
}

}  // namespace dtorch::nn_ops
