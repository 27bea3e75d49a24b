// index(x, {i0, i1, ...}) = x[i0, i1, ...] with index tensors; take by position in the flattened x; index_select.
// Layouts: dims without an index keep their shards; the indices may be sharded while x is Replicate; x pending and
// indices Replicate stays pending. Where x is sharded along an indexed dim each device gives the elements that it holds
// and zeros elsewhere: Partial(sum), which the user's function reduces to where the indices were. Gradient: index_put
// of g, accumulating.
#include <algorithm>

#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/index/positions.h"
#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/core/List.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_select.h>
#endif

namespace dtorch {
namespace {

using namespace indexing;

Dims dims_of(const Shape& x, size_t num_indices, const Shape& index, const IndexAttrs& attributes) {
  return indexed_dims(x.ndim(), attributes.dims, num_indices, index.ndim());
}

std::vector<OutputMeta> infer(const InferContext& context) {
  const Shape &x = context.shape(0), &index = context.shape(1);
  const Dims dims = dims_of(x, context.inputs.size() - 1, index, context.attributes<IndexAttrs>());
  Shape out;
  for (size_t m = 0; m < dims.x.size(); ++m) out.push_back(dims.x[m] >= 0 ? x[dims.x[m]] : index[dims.index[m]]);
  return {{out, context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return pick_rule(
      dims_of(context.shape(0), context.inputs.size() - 1, context.shape(1), context.attributes<IndexAttrs>()));
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  const Tensor& g = context.grad_output(0);
  const Where where = Where::current();
  std::vector<Tensor> indices, gradients(context.num_inputs());
  for (size_t i = 1; i < context.num_inputs(); ++i) indices.push_back(context.input(i));
  const Tensor zero = zeros_with(g, meta.global_shape, meta.layout.without_partial(), where);
  IndexAttrs attributes = context.attributes<IndexAttrs>();
  attributes.accumulate = true;
  gradients[0] =
      math::place_gradient(put_values("index_put", zero, indices, g, attributes, /*keep_pending=*/true, where), meta);
  return gradients;
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<IndexAttrs>();
  const at::Tensor& x = input(context, 0);
  const LocalPositions local = local_positions(context);
  const at::Scalar nothing = identity_of_sum(context.output_meta(0).dtype);
  if (x.numel() == 0 || context.output_box(0).num_elements() == 0) {
    set_output(context, 0, at::full(output_sizes(context, 0), nothing, x.options()));
    return;
  }
  at::Tensor out;
  if (x.dim() == 0) {
    out = x.expand(output_sizes(context, 0)).clone(at::MemoryFormat::Contiguous);
  } else if (local.positions.size() == 1 && local.positions[0].dim() == 1) {
    out = at::index_select(x, attributes.dims[0], local.positions[0]);
  } else {
    c10::List<std::optional<at::Tensor>> indices;
    for (int64_t d = 0; d < x.dim(); ++d) indices.push_back(std::nullopt);
    for (size_t i = 0; i < local.positions.size(); ++i)
      indices.set(static_cast<size_t>(attributes.dims[i]), local.positions[i]);
    out = at::index(x, indices);
  }
  if (local.held.defined()) {
    // Broadcast over the dims without an index that follow the indices'.
    const Dims dims = dims_of(context.input_meta(0).global_shape, context.num_inputs() - 1,
                              context.input_meta(1).global_shape, attributes);
    at::Tensor absent = local.held.logical_not();
    for (auto m = dims.x.rbegin(); m != dims.x.rend() && *m >= 0; ++m) absent = absent.unsqueeze(-1);
    out.masked_fill_(absent, nothing);
  }
  set_output(context, 0, std::move(out));
}
#endif

std::vector<Sample> index_samples() {
  return {{.name = "two indices, neighbours",
           .inputs = {{{5, 3, 2}}, indices_below(5, {4}), indices_below(3, {4})},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{index(in[0], {in[1], in[2]})};
               }},
          {.name = "indices apart, broadcast",
           .inputs = {{{3, 5, 4}, kFloat64}, indices_below(3, {2, 1}), indices_below(4, {3})},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{index(in[0], {in[1], std::nullopt, in[2]})};
               }},
          {.name = "one index of two dims, negative",
           .inputs = {{{5, 1}, kInt64, SampleFill::kIota, 0, false}, indices_below(5, {3, 2}, kInt32)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{index(in[0], {neg(in[1])})}; }},
          {.name = "mask",
           .inputs = {{{3, 5, 2}}, {{3, 5}, kBool, SampleFill::kBool}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{index(in[0], {in[1]})}; }},
          {.name = "empty", .inputs = {{{5, 2}}, indices_below(5, {0})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{index(in[0], {in[1]})};
           }}};
}
std::vector<Sample> index_select_samples() {
  const auto call = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{index_select(in[0], dim, in[1])}; };
  };
  return {
      {.name = "rows, uneven", .inputs = {{{5, 3}}, indices_below(5, {7})}, .call = call(0)},
      {.name = "columns, size 1", .inputs = {{{1, 4, 3}, kFloat64}, indices_below(4, {3}, kInt32)}, .call = call(-2)}};
}
std::vector<Sample> take_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{take(in[0], in[1])}; };
  return {{.name = "uneven", .inputs = {{{5, 3}}, indices_below(15, {7, 2})}, .call = call},
          {.name = "size 1", .inputs = {{{4, 1, 3}, kFloat64}, indices_below(12, {5})}, .call = call}};
}

}  // namespace

constinit OperatorDef index_op = {.name = "index",
                                  .signature = "index(x, indices) -> Tensor",
                                  .attributes = attribute_codec<IndexAttrs>(),
                                  .infer = infer,
                                  .rule = rule,
                                  .kernel = DTORCH_KERNEL(kernel),
                                  .gradient = gradient,
                                  .samples = index_samples,
                                  .placement_class = PlacementClass::kCombines,
                                  .linear_in = "x",
                                  .saved_inputs = 0xFFFFFFFEu};
// Compositions.
constinit OperatorDef index_select_op = {.name = "index_select",
                                         .signature = "index_select(x, dim, index) -> Tensor",
                                         .samples = index_select_samples,
                                         .placement_class = PlacementClass::kCombines,
                                         .linear_in = "x"};
constinit OperatorDef take_op = {.name = "take",
                                 .signature = "take(x, index) -> Tensor",
                                 .samples = take_samples,
                                 .placement_class = PlacementClass::kCombines,
                                 .linear_in = "x"};

namespace indexing {

Tensor pick(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const IndexAttrs& attributes,
            const Where& where) {
  const Placed placed =
      place_pick(op, x, indices, dims_of(x.shape(), indices.size(), indices[0].shape(), attributes), where);
  return finish(std::move(record_list(index_op, attributes, placed.inputs, 1, where)[0]), placed.result, where);
}

IndexList index_list(const char* op, const Tensor& x, const std::vector<std::optional<Tensor>>& given,
                     const Where& where) {
  IndexList list;
  Shape common;
  int64_t d = 0;
  const auto need_dims = [&](int64_t count) {
    if (d + count <= x.ndim()) return;
    throw at_line(ShapeError(std::string("[") + op + "] more indices than x " + x.shape().str() + " has dims"), where);
  };
  for (const std::optional<Tensor>& one : given) {
    if (!one) {
      need_dims(1);
      ++d;
      continue;
    }
    std::vector<Tensor> parts = {*one};
    if (one->dtype() == kBool) {
      need_dims(one->ndim());
      for (int64_t m = 0; m < one->ndim(); ++m) {
        if (one->shape()[m] == x.shape()[d + m]) continue;
        throw at_line(ShapeError(std::string("[") + op + "] a mask is " + one->shape().str() + " for x " +
                                 x.shape().str() + " from dim " + std::to_string(d) + " on; the sizes must be equal"),
                      where);
      }
      if (one->ndim() == 0) throw at_line(ShapeError(std::string("[") + op + "] a mask without dims"), where);
      parts = true_positions(*one, where);
    } else {
      need_dims(1);
      need_index(op, *one, where);
    }
    for (const Tensor& part : parts) {
      list.indices.push_back(reduce_pending(op, part, {}, where));
      list.dims.push_back(d++);
      common = broadcast_shapes(common, part.shape(), op);
    }
  }
  for (Tensor& one : list.indices) one = broadcast_to(op, one, common, where);
  const Dims dims = indexed_dims(x.ndim(), list.dims, list.indices.size(), common.ndim());
  for (size_t m = 0; m < dims.x.size(); ++m)
    list.picked.push_back(dims.x[m] >= 0 ? x.shape()[dims.x[m]] : common[dims.index[m]]);
  return list;
}

}  // namespace indexing

Tensor index(const Tensor& x, const std::vector<std::optional<Tensor>>& indices, Where where) {
  SourceScope scope(where);
  const IndexList list = index_list("index", x, indices, where);
  if (list.indices.empty()) return x;
  return pick("index", x, list.indices, {.dims = list.dims}, where);
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, Where where) {
  SourceScope scope(where);
  need_index("index_select", index, where);
  const int64_t d = normalize_dim(dim, x.ndim(), "index_select", where);
  if (index.ndim() > 1) {
    throw at_line(ShapeError("[index_select] index is " + index.shape().str() + ", must have one dim"), where);
  }
  const Tensor list = index.ndim() == 0 ? unsqueeze(index, 0, where) : index;
  return pick("index_select", x, {list}, {.dims = {d}, .wraps = false}, where);
}

Tensor take(const Tensor& x, const Tensor& index, Where where) {
  SourceScope scope(where);
  need_index("take", index, where);
  IndexAttrs attributes{.dims = {}, .flat = true};
  for (int64_t d = 0; d < x.ndim(); ++d) attributes.dims.push_back(d);
  return pick("take", x, {index}, attributes, where);
}

}  // namespace dtorch
