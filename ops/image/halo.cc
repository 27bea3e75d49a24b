// with_halo: halo_edges(x) cuts the first and last rows of this device's part, which are gathered; halo_windows(x,
// edges) puts together the rows that this device's part of the result reads, from its own part and the edges of the
// others. Both are copies: pending sums pass. Gradients add up what was copied (halo_windows_grad, halo_edges_grad);
// the edges' gradient is pending until it is back with the owners of the rows.
#include "ops/image/halo.h"

#include <algorithm>

#include "ops/image/operators.h"
#include "ops/move/combine.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace image {
namespace {

// Rows of one dim by parts, in the order of the dim's axes.
struct HaloAttrs {
  int64_t dim = 0;
  std::vector<int64_t> parts;         // offsets of x's parts, and its size
  std::vector<int64_t> begins, ends;  // rows of x (or outside it) that each part of the result reads
  int64_t length = 0;                 // of every window: the longest
  int64_t head = 0, tail = 0;         // rows that every part offers from its beginning and its end
  double outside = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("parts", parts);
    v("begins", begins);
    v("ends", ends);
    v("length", length);
    v("head", head);
    v("tail", tail);
    v("outside", outside);
  }
  int64_t num_parts() const { return static_cast<int64_t>(begins.size()); }
  int64_t num_edges() const { return head + tail; }
  int64_t size() const { return parts.back(); }
  // The part that holds row r of x.
  int64_t owner(int64_t r) const { return std::upper_bound(parts.begin(), parts.end(), r) - parts.begin() - 1; }
  // Where row r is among the edges; its part must offer it.
  int64_t edge_of(int64_t r) const {
    const auto part = static_cast<size_t>(owner(r));
    const int64_t first = static_cast<int64_t>(part) * num_edges(), from_begin = r - parts[part];
    return first + (from_begin < head ? from_begin : num_edges() - (parts[part + 1] - r));
  }
};

std::vector<OutputMeta> edges_infer(const InferContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  Shape shape = context.shape(0);
  shape[a.dim] = a.num_parts() * a.num_edges();
  return {{shape, context.dtype(0)}};
}
// (x[, edges]) -> windows
std::vector<OutputMeta> windows_infer(const InferContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  Shape shape = context.shape(0);
  shape[a.dim] = a.num_parts() * a.length;
  return {{shape, context.dtype(0)}};
}
// g of the windows -> (gradient of x[, of the edges])
std::vector<OutputMeta> windows_grad_infer(const InferContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  Shape x = context.shape(0), edges = x;
  x[a.dim] = a.size();
  edges[a.dim] = a.num_parts() * a.num_edges();
  if (a.num_edges() == 0) return {{x, context.dtype(0)}};
  return {{x, context.dtype(0)}, {edges, context.dtype(0)}};
}
std::vector<OutputMeta> edges_grad_infer(const InferContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  Shape shape = context.shape(0);
  shape[a.dim] = a.size();
  return {{shape, context.dtype(0)}};
}

// Every dim keeps its shards; the edges aren't sharded along the dim of the halo, and a gradient of theirs is Partial
// there.
Rule halo_rule(const InferContext& context, size_t num_inputs, size_t num_outputs, std::vector<ReduceOp> pending) {
  const auto& a = context.attributes<HaloAttrs>();
  const int64_t ndim = context.shape(0).ndim();
  Letters all, edges;
  for (int64_t d = 0; d < ndim; ++d) {
    all.push_back(static_cast<int16_t>(d + 1));
    edges.push_back(d == a.dim ? kNoLetter : static_cast<int16_t>(d + 1));
  }
  Rule rule;
  const auto row = [&](const Placement& first, const Placement& in, const Placement& out) {
    Row row{{first}, {first}};
    if (num_inputs == 2) row.inputs.push_back(in);
    if (num_outputs == 2) row.outputs.push_back(out);
    rule.rows.push_back(row);
  };
  for (int64_t d = 0; d < ndim; ++d) {
    const bool halo = d == a.dim;
    row(Shard(d), halo ? Replicate() : Shard(d), halo ? Partial() : Shard(d));
  }
  for (ReduceOp kind : pending) row(Partial(kind), Partial(kind), Partial(kind));
  rule.input_letters = {all};
  rule.output_letters = {all};
  if (num_inputs == 2) rule.input_letters.push_back(edges);
  if (num_outputs == 2) rule.output_letters.push_back(edges);
  return rule;
}

Rule edges_rule(const InferContext& context, std::span<const OutputMeta>) {
  return halo_rule(context, 1, 1, {kSum, kAvg, kMax, kMin});
}
// Rows outside x that are 0 are the identity of sums; the least value is that of a maximum. Without such rows the
// windows are copies.
Rule windows_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& a = context.attributes<HaloAttrs>();
  std::vector<ReduceOp> pending = {kSum, kAvg, kMax, kMin};
  if (*std::ranges::min_element(a.begins) < 0 || *std::ranges::max_element(a.ends) > a.size()) {
    pending = a.outside == 0 ? std::vector<ReduceOp>{kSum, kAvg} : std::vector<ReduceOp>{kMax};
  }
  return halo_rule(context, context.inputs.size(), 1, pending);
}
Rule windows_grad_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  return halo_rule(context, 1, outputs.size(), {kSum});
}
Rule edges_grad_rule(const InferContext& context, std::span<const OutputMeta>) {
  return halo_rule(context, 1, 1, {kSum});
}

std::vector<Tensor> edges_gradient(const GradientContext& context) {
  return {record(halo_edges_grad_op, context.attributes<HaloAttrs>(), {&context.grad_output(0)}, Where::current())};
}
std::vector<Tensor> windows_gradient(const GradientContext& context) {
  return record_list(halo_windows_grad_op, context.attributes<HaloAttrs>(), {context.grad_output(0)},
                     context.num_inputs(), Where::current());
}

#if DTORCH_WITH_KERNELS
void edges_kernel(KernelContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  const at::Tensor& x = input(context, 0);
  const int64_t length = x.size(a.dim), head = std::min(a.head, length), tail = std::min(a.tail, length);
  at::Tensor edges = at::zeros(output_sizes(context, 0), x.options());
  edges.narrow(a.dim, 0, head).copy_(x.narrow(a.dim, 0, head));
  edges.narrow(a.dim, a.num_edges() - tail, tail).copy_(x.narrow(a.dim, length - tail, tail));
  set_output(context, 0, edges);
}
void edges_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  const at::Tensor& g = input(context, 0);
  at::Tensor dx = at::zeros(output_sizes(context, 0), g.options());
  const int64_t length = dx.size(a.dim), head = std::min(a.head, length), tail = std::min(a.tail, length);
  dx.narrow(a.dim, 0, head).add_(g.narrow(a.dim, 0, head));
  dx.narrow(a.dim, length - tail, tail).add_(g.narrow(a.dim, a.num_edges() - tail, tail));
  set_output(context, 0, dx);
}

// For the window of the part whose windows tensor has `box`: own(window row, local row, count) once for what the device
// holds itself, other(window row, edge) for every row of another part.
template <class Own, class Other>
void for_each_source(const HaloAttrs& a, const Box& box, const Own& own, const Other& other) {
  const auto part = static_cast<size_t>(box.offset[a.dim] / a.length);
  const int64_t begin = a.begins[part], first = a.parts[part], last = a.parts[part + 1];
  const int64_t from = std::max<int64_t>(begin, 0), to = std::min(a.ends[part], a.size());
  const int64_t own_from = std::clamp(first, from, std::max(from, to)),
                own_to = std::clamp(last, own_from, std::max(own_from, to));
  if (own_to > own_from) own(own_from - begin, own_from - first, own_to - own_from);
  for (int64_t r = from; r < to; ++r) {
    if (r < first || r >= last) other(r - begin, a.edge_of(r));
  }
}

void windows_kernel(KernelContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  const at::Tensor& x = input(context, 0);
  at::Tensor windows = at::full(output_sizes(context, 0), a.outside, x.options());
  for_each_source(
      a, context.output_box(0),
      [&](int64_t at, int64_t row, int64_t count) {
        windows.narrow(a.dim, at, count).copy_(x.narrow(a.dim, row, count));
      },
      [&](int64_t at, int64_t edge) { windows.select(a.dim, at).copy_(input(context, 1).select(a.dim, edge)); });
  set_output(context, 0, windows);
}
void windows_grad_kernel(KernelContext& context) {
  const auto& a = context.attributes<HaloAttrs>();
  const at::Tensor& g = input(context, 0);
  at::Tensor dx = at::zeros(output_sizes(context, 0), g.options()), edges;
  if (context.num_outputs() == 2) edges = at::zeros(output_sizes(context, 1), g.options());
  for_each_source(
      a, context.input_box(0),
      [&](int64_t at, int64_t row, int64_t count) { dx.narrow(a.dim, row, count).add_(g.narrow(a.dim, at, count)); },
      [&](int64_t at, int64_t edge) { edges.select(a.dim, edge).add_(g.select(a.dim, at)); });
  set_output(context, 0, dx);
  if (edges.defined()) set_output(context, 1, edges);
}
#endif

void split(const Layout& layout, const AxisList& axes, int64_t depth, Span1 rows, std::vector<int64_t>* offsets) {
  if (depth == axes.size()) return offsets->push_back(rows.offset);
  const int64_t parts = layout.mesh().shape()[axes[depth]];
  for (int64_t i = 0; i < parts; ++i) {
    const Span1 part = split_part(rows.size, parts, i);
    split(layout, axes, depth + 1, {rows.offset + part.offset, part.size}, offsets);
  }
}

// Fills in what the parts read, and the least that they have to offer for it.
HaloAttrs plan(const Layout& layout, int64_t dim, int64_t size, const Reads& reads) {
  HaloAttrs a;
  a.dim = dim;
  a.parts = part_offsets(layout, dim, size);
  const std::vector<int64_t> results = part_offsets(layout, dim, reads.out_size);
  int64_t longest = 0;
  for (size_t part = 0; part + 1 < a.parts.size(); ++part) {
    const int64_t first = a.parts[part], last = a.parts[part + 1];
    longest = std::max(longest, last - first);
    const bool none = results[part] == results[part + 1];
    a.begins.push_back(none ? first : reads.rows(results[part]).first);
    a.ends.push_back(none ? first : reads.rows(results[part + 1] - 1).second);
    a.length = std::max(a.length, a.ends.back() - a.begins.back());
  }
  for (size_t part = 0; part < a.begins.size(); ++part) {
    for (int64_t r = std::max<int64_t>(a.begins[part], 0); r < std::min(a.ends[part], size); ++r) {
      const auto owner = static_cast<size_t>(a.owner(r));
      if (owner > part) a.head = std::max(a.head, r - a.parts[owner] + 1);
      if (owner < part) a.tail = std::max(a.tail, a.parts[owner + 1] - r);
    }
  }
  if (a.num_edges() > longest) {
    a.head = longest;
    a.tail = 0;
  }
  return a;
}

// Each part begins with what is read and holds all of it.
bool is_local(const HaloAttrs& a) {
  for (size_t part = 0; part < a.begins.size(); ++part) {
    if (a.begins[part] != a.parts[part] || a.ends[part] > a.parts[part + 1]) return false;
  }
  return true;
}

}  // namespace

std::vector<int64_t> part_offsets(const Layout& layout, int64_t dim, int64_t size) {
  std::vector<int64_t> offsets;
  split(layout, layout.axes_of_dim(dim), 0, {0, size}, &offsets);
  offsets.push_back(size);
  return offsets;
}

Tensor with_halo(const char* op, const Tensor& x, int64_t dim, const Reads& reads, double outside, const Where& where) {
  HaloAttrs a = plan(x.layout(), dim, x.shape()[dim], reads);
  if (is_local(a)) return x;
  a.outside = outside;
  if (a.num_edges() == 0) return record(halo_windows_op, a, {&x}, where);
  require_implicit_redistribution(op, x, unsharded_layout(x, dim), where);
  Tensor edges = record(halo_edges_op, a, {&x}, where);
  edges = edges.redistribute(unsharded_layout(edges, dim), where);
  return record(halo_windows_op, a, {&x, &edges}, where);
}

}  // namespace image

constinit OperatorDef halo_edges_op = {
    .name = "halo_edges",
    .signature = "conv/pool(x, dim) -> edges",
    .attributes = attribute_codec<image::HaloAttrs>(),
    .infer = image::edges_infer,
    .rule = image::edges_rule,
    .kernel = DTORCH_KERNEL(image::edges_kernel),
    .gradient = image::edges_gradient,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef halo_edges_grad_op = {
    .name = "halo_edges_grad",
    .signature = "conv/pool(g, dim) -> gradient of edges",
    .attributes = attribute_codec<image::HaloAttrs>(),
    .infer = image::edges_grad_infer,
    .rule = image::edges_grad_rule,
    .kernel = DTORCH_KERNEL(image::edges_grad_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};
constinit OperatorDef halo_windows_op = {
    .name = "halo_windows",
    .signature = "conv/pool(x, edges, dim) -> windows",
    .attributes = attribute_codec<image::HaloAttrs>(),
    .infer = image::windows_infer,
    .rule = image::windows_rule,
    .kernel = DTORCH_KERNEL(image::windows_kernel),
    .gradient = image::windows_gradient,
    .linear_in = "(x, edges)",
    .saved_inputs = 0,
};
constinit OperatorDef halo_windows_grad_op = {
    .name = "halo_windows_grad",
    .signature = "conv/pool(g, dim) -> gradient of windows (x, edges)",
    .attributes = attribute_codec<image::HaloAttrs>(),
    .infer = image::windows_grad_infer,
    .rule = image::windows_grad_rule,
    .kernel = DTORCH_KERNEL(image::windows_grad_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

}  // namespace dtorch
