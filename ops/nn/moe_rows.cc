// moe_dispatch(x [..., D], gates [..., E]) -> (rows [P, ..., W], counts [devices, P]): rows[p, t] is x[t], with the
// gates of part p's experts behind it where the attributes say so, if token t has a gate that isn't 0 for one of them;
// the others aren't stored. moe_combine(rows, gates) -> y [..., O] or (x [..., D], gates [..., E]): the sum over parts
// of the rows of each token, and the gates back in their columns. The transpose of moe_dispatch. moe_experts_rows(rows,
// w1, w3, w2) -> rows: moe_experts of the rows that have come to a part. Its gradient is one operator, linear in g.
#include "ops/nn/moe_rows.h"

#include <algorithm>

#include "ops/nn/moe_local.h"
#include "ops/nn/operators.h"

#if DTORCH_WITH_KERNELS
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

// [P, ..., width] for tokens of shape [..., anything].
Shape rows_shape(int64_t parts, const Shape& tokens, int64_t width) {
  Shape shape = {parts};
  for (int64_t d = 0; d + 1 < tokens.ndim(); ++d) shape.push_back(tokens[d]);
  shape.push_back(width);
  return shape;
}
Shape with_last(Shape shape, int64_t last) {
  shape[shape.ndim() - 1] = last;
  return shape;
}

std::vector<OutputMeta> dispatch_infer(const InferContext& context) {
  const auto& attributes = context.attributes<MoeRowsAttrs>();
  const Shape &x = context.shape(0), &gates = context.shape(1);
  const int64_t width = x.back() + (attributes.with_gates ? gates_width(gates.back(), attributes.parts) : 0);
  const int64_t devices = context.inputs[0]->layout.mesh().num_devices();
  return {{rows_shape(attributes.parts, x, width), context.dtype(0)}, {{devices, attributes.parts}, kInt64}};
}
std::vector<OutputMeta> combine_infer(const InferContext& context) {
  const auto& attributes = context.attributes<MoeRowsAttrs>();
  const Shape& gates = context.shape(1);
  const int64_t width = context.shape(0).back();
  if (!attributes.with_gates) return {{with_last(gates, width), context.dtype(0)}};
  return {{with_last(gates, width - gates_width(gates.back(), attributes.parts)), context.dtype(0)},
          {gates, context.dtype(0)}};
}
std::vector<OutputMeta> experts_infer(const InferContext& context) {
  return {{with_last(context.shape(0), context.shape(3)[1]), context.dtype(0)}};
}
// (g, rows, w1, w3, w2) -> (drows, dw1, dw3, dw2)
std::vector<OutputMeta> experts_grad_infer(const InferContext& context) {
  std::vector<OutputMeta> outputs;
  for (size_t i = 1; i < 5; ++i) outputs.push_back({context.shape(i), context.dtype(i)});
  return outputs;
}

#if DTORCH_WITH_KERNELS
at::Tensor as_rows(const at::Tensor& x) {
  int64_t tokens = 1;
  for (int64_t d = 0; d + 1 < x.dim(); ++d) tokens *= x.size(d);
  return x.reshape({tokens, x.size(-1)}).contiguous();
}

// Local tokens, ascending, that go to each part.
std::vector<std::vector<int64_t>> tokens_of_parts(const at::Tensor& gates, int64_t parts) {
  std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(parts));
  const int64_t experts = gates.size(1);
  const at::Tensor routed = gates.ne(0);
  const bool* row = routed.const_data_ptr<bool>();
  for (int64_t token = 0; token < gates.size(0); ++token, row += experts) {
    for (int64_t part = 0; part < parts; ++part) {
      const Span1 own = split_part(experts, parts, part);
      if (std::any_of(row + own.offset, row + own.offset + own.size, [](bool chosen) { return chosen; }))
        tokens[static_cast<size_t>(part)].push_back(token);
    }
  }
  return tokens;
}

void dispatch_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MoeRowsAttrs>();
  const at::Tensor x = as_rows(input(context, 0)), gates = as_rows(input(context, 1));
  const auto tokens = tokens_of_parts(gates, attributes.parts);
  const int64_t width = context.output_box(0).size.back(), experts = gates.size(1);
  int64_t total = 0;
  for (const auto& of_part : tokens) total += static_cast<int64_t>(of_part.size());
  at::Tensor rows = at::zeros({total, width}, x.options());
  at::Tensor counts = at::empty({1, attributes.parts}, x.options().dtype(at::kLong));
  const size_t element = x.element_size(), row_bytes = static_cast<size_t>(width) * element,
               x_bytes = static_cast<size_t>(x.size(1)) * element;
  auto* to = static_cast<std::byte*>(rows.mutable_data_ptr());
  const auto *from = static_cast<const std::byte*>(x.const_data_ptr()),
             *gate = static_cast<const std::byte*>(gates.const_data_ptr());
  for (int64_t part = 0; part < attributes.parts; ++part) {
    const Span1 own = split_part(experts, attributes.parts, part);
    const auto& of_part = tokens[static_cast<size_t>(part)];
    counts.mutable_data_ptr<int64_t>()[part] = static_cast<int64_t>(of_part.size());
    for (int64_t token : of_part) {
      std::memcpy(to, from + static_cast<size_t>(token) * x_bytes, x_bytes);
      if (attributes.with_gates) {
        std::memcpy(to + x_bytes, gate + static_cast<size_t>(token * experts + own.offset) * element,
                    static_cast<size_t>(own.size) * element);
      }
      to += row_bytes;
    }
  }
  set_output(context, 0, rows);
  set_output(context, 1, counts);
}

void combine_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<MoeRowsAttrs>();
  const at::Tensor &rows = input(context, 0), gates = as_rows(input(context, 1));
  const auto tokens = tokens_of_parts(gates, attributes.parts);
  const int64_t experts = gates.size(1), width = context.output_box(0).size.back();
  const at::ScalarType type = rows.scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  at::Tensor y = at::zeros({gates.size(0), width}, rows.options().dtype(is_half ? at::kFloat : type));
  at::Tensor dgates = attributes.with_gates ? at::zeros(gates.sizes(), rows.options()) : at::Tensor();
  int64_t first = 0;
  for (int64_t part = 0; part < attributes.parts; ++part) {
    std::vector<int64_t> of_part = tokens[static_cast<size_t>(part)];
    const auto count = static_cast<int64_t>(of_part.size());
    DTORCH_CHECK(first + count <= rows.size(0), "fewer rows have come back than were sent");
    const at::Tensor back = rows.narrow(0, first, count);
    const at::Tensor at_tokens = at::from_blob(of_part.data(), {count}, at::TensorOptions().dtype(at::kLong));
    first += count;
    if (count == 0) continue;
    y.index_add_(0, at_tokens, back.narrow(1, 0, width).to(y.scalar_type()));
    if (!attributes.with_gates) continue;
    const Span1 own = split_part(experts, attributes.parts, part);
    dgates.narrow(1, own.offset, own.size).index_copy_(0, at_tokens, back.narrow(1, width, own.size));
  }
  DTORCH_CHECK(first == rows.size(0), "more rows have come back than were sent");
  set_output(context, 0, y.to(type).view(output_sizes(context, 0)));
  if (attributes.with_gates) set_output(context, 1, dgates.view(output_sizes(context, 1)));
}

// Of rows that end with gates: x and the gates of this device's experts.
struct SplitRows {
  SplitRows(const at::Tensor& rows, const at::Tensor& w1)
      : x(rows.narrow(1, 0, w1.size(2))), gates(rows.narrow(1, w1.size(2), w1.size(0))) {}
  at::Tensor x, gates;
};

void experts_kernel(KernelContext& context) {
  const at::Tensor& w1 = input(context, 1);
  const SplitRows rows(input(context, 0), w1);
  set_output(context, 0, moe::experts(rows.x, rows.gates, {w1, input(context, 2), input(context, 3)}));
}

void experts_grad_kernel(KernelContext& context) {
  const at::Tensor &g = input(context, 0), &rows = input(context, 1), &w1 = input(context, 2);
  const SplitRows in(rows, w1);
  std::vector<at::Tensor> out = {at::zeros(rows.sizes(), rows.options())};
  for (size_t i = 1; i < 4; ++i) out.push_back(at::zeros(output_sizes(context, i), rows.options()));
  const SplitRows sums_of_rows(out[0], w1);
  moe::Gradients sums{sums_of_rows.x, sums_of_rows.gates, out[1], out[2], out[3]};
  moe::experts_grad(g, in.x, in.gates, {w1, input(context, 3), input(context, 4)}, sums);
  for (size_t i = 0; i < 4; ++i) set_output(context, i, out[i]);
}
#endif

// Rows are parts of a sum where the weights' inner dim is split, and so are their gradients; the weights' are where the
// tokens are split.
std::vector<Tensor> experts_gradient(const GradientContext& context) {
  const Tensor rows = context.input(0), w1 = context.input(1), w3 = context.input(2), w2 = context.input(3);
  Placements of_rows = rows.placements();
  std::vector<Placements> of_weights = {w1.placements(), w3.placements(), w2.placements()};
  for (int64_t axis = 0; axis < of_rows.size(); ++axis) {
    if (w1.placements()[axis].is_shard(1)) of_rows[axis] = Partial();
    if (!of_rows[axis].is_shard() || of_rows[axis].is_shard(0)) continue;
    for (Placements& placements : of_weights) placements[axis] = Partial();
  }
  const auto layout = [](const Tensor& x, const Placements& placements) {
    return Layout(x.mesh(), placements, x.ndim(), x.layout().shard_order());
  };
  const Layout layouts[] = {layout(rows, of_rows), layout(w1, of_weights[0]), layout(w3, of_weights[1]),
                            layout(w2, of_weights[2])};
  auto [drows, dw1, dw3, dw2] =
      record_many<4>(moe_experts_rows_grad_op, NoAttrs{}, {&context.grad_output(0), &rows, &w1, &w3, &w2},
                     Where::current(), {.output_layouts = layouts});
  return {drows, dw1, dw3, dw2};
}

}  // namespace

int64_t nn_ops::gates_width(int64_t experts, int64_t parts) { return split_part(experts, parts, 0).size; }

constinit OperatorDef moe_dispatch_op = {.name = "moe_dispatch",
                                         .signature = "moe_dispatch(x, gates) -> (rows, counts)",
                                         .attributes = attribute_codec<MoeRowsAttrs>(),
                                         .infer = dispatch_infer,
                                         .kernel = DTORCH_KERNEL(dispatch_kernel),
                                         .ragged_outputs = 1};
constinit OperatorDef moe_combine_op = {.name = "moe_combine",
                                        .signature = "moe_combine(rows, gates) -> (y, gates)",
                                        .attributes = attribute_codec<MoeRowsAttrs>(),
                                        .infer = combine_infer,
                                        .kernel = DTORCH_KERNEL(combine_kernel),
                                        .ragged_inputs = 1};
constinit OperatorDef moe_experts_rows_op = {.name = "moe_experts_rows",
                                             .signature = "moe_experts_rows(rows, w1, w3, w2) -> rows",
                                             .infer = experts_infer,
                                             .kernel = DTORCH_KERNEL(experts_kernel),
                                             .gradient = experts_gradient,
                                             .ragged_inputs = 1,
                                             .ragged_outputs = 1};
constinit OperatorDef moe_experts_rows_grad_op = {
    .name = "moe_experts_rows_grad",
    .signature = "moe_experts_rows_grad(g, rows, w1, w3, w2) -> (drows, dw1, dw3, dw2)",
    .infer = experts_grad_infer,
    .kernel = DTORCH_KERNEL(experts_grad_kernel),
    .linear_in = "g",
    .ragged_inputs = 3,
    .ragged_outputs = 1};

}  // namespace dtorch
