// index_put(x, {i0, i1, ...}, values, accumulate): x with x[i0, i1, ...] = values, or += values; put by position in the
// flattened x; index_add, index_copy, index_fill along one dim. Layouts: x keeps its own; dims without an index are
// sharded in x and values alike; along an indexed dim every device needs the indices and values whole and applies what
// falls into its part. Sums of sharded indices into a Replicate x are Partial, which the user's function reduces.
// Linear in x and values together. Of values for one place the last in the indices' order stays. Gradients: x: g, with
// 0 at the indices unless accumulating; values: index(g).
#include <algorithm>
#include <cstring>

#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/index/positions.h"
#include "ops/index/put_on_device.h"
#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace {

using namespace indexing;

Dims dims_of(const Shape& x, size_t num_indices, const Shape& index, const IndexAttrs& attributes) {
  return indexed_dims(x.ndim(), attributes.dims, num_indices, index.ndim());
}
Dims dims_of(const InferContext& context) {
  return dims_of(context.shape(0), context.inputs.size() - 2, context.shape(1), context.attributes<IndexAttrs>());
}

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return put_rule(dims_of(context), context.attributes<IndexAttrs>().accumulate ? Put::kAdd : Put::kAssign,
                  context.inputs);
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const auto& attributes = context.attributes<IndexAttrs>();
  const Where where = Where::current();
  const size_t last = context.num_inputs() - 1;
  const Tensor& g = context.grad_output(0);
  std::vector<Tensor> indices, gradients(context.num_inputs());
  for (size_t i = 1; i < last; ++i) indices.push_back(context.input(i));
  if (context.needs_grad(0)) {
    Tensor of_x = g;
    if (!attributes.accumulate) {
      const TensorMeta& values = context.input_meta(last);
      const Tensor zero = zeros_with(g, values.global_shape, values.layout.without_partial(), where);
      of_x = put_values("index_put", g, indices, zero, attributes, false, where);
    }
    gradients[0] = math::place_gradient(of_x, context.input_meta(0));
  }
  if (context.needs_grad(last))
    gradients[last] = math::place_gradient(pick("index", g, indices, attributes, where), context.input_meta(last));
  return gradients;
}

#if DTORCH_WITH_KERNELS
// Row i of values goes to offsets[i] of out (unless that is negative); its element r another steps[r] elements on.
struct Writes {
  const int64_t* offsets;
  int64_t num_rows;
  std::vector<int64_t> steps;
  bool dense;  // steps are 0, 1, 2, ...
};

template <class T>
void assign(const Writes& writes, const T* values, T* out) {
  const auto width = writes.steps.size();
  for (int64_t i = 0; i < writes.num_rows; ++i, values += width) {
    if (writes.offsets[i] < 0) continue;
    T* row = out + writes.offsets[i];
    if (writes.dense) {
      std::memcpy(row, values, width * sizeof(T));
    } else {
      for (size_t r = 0; r < width; ++r) row[writes.steps[r]] = values[r];
    }
  }
}
template <class T>
void accumulate(const Writes& writes, const T* values, T* out) {
  const auto width = writes.steps.size();
  for (int64_t i = 0; i < writes.num_rows; ++i, values += width) {
    if (writes.offsets[i] < 0) continue;
    T* row = out + writes.offsets[i];
    for (size_t r = 0; r < width; ++r) row[writes.steps[r]] = static_cast<T>(row[writes.steps[r]] + values[r]);
  }
}

// Offsets of the elements of a block of `sizes` and `strides`, row-major.
std::vector<int64_t> steps_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<int64_t> steps = {0};
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::vector<int64_t> longer;
    longer.reserve(steps.size() * static_cast<size_t>(sizes[d]));
    for (int64_t step : steps) {
      for (int64_t i = 0; i < sizes[d]; ++i) longer.push_back(step + i * strides[d]);
    }
    steps = std::move(longer);
  }
  return steps;
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<IndexAttrs>();
  const size_t last = context.num_inputs() - 1;
  const LocalPositions local = local_positions(context);
  at::Tensor out = writable_input(context);
  const Dims dims =
      dims_of(context.input_meta(0).global_shape, last - 1, context.input_meta(1).global_shape, attributes);
  // The indices' dims of values first, then x's other dims.
  std::vector<int64_t> order, sizes, strides;
  for (bool of_index : {true, false}) {
    for (size_t m = 0; m < dims.x.size(); ++m) {
      if ((dims.index[m] >= 0) != of_index) continue;
      order.push_back(static_cast<int64_t>(m));
      if (of_index) continue;
      sizes.push_back(out.size(dims.x[m]));
      strides.push_back(out.stride(dims.x[m]));
    }
  }
  if (out.numel() > 0 && input(context, last).numel() > 0) {
    const at::Tensor values = input(context, last).permute(order).contiguous();
    at::Tensor offsets = input(context, 1).to(at::kLong).mul(0);
    for (size_t i = 0; i < local.positions.size(); ++i)
      offsets.add_(local.positions[i], out.stride(attributes.dims[i]));
    if (!out.is_cpu()) {
      put_on_device(out, offsets, local.held, sizes, strides, values, attributes.accumulate);
      return set_output(context, 0, std::move(out));
    }
    if (local.held.defined()) offsets.masked_fill_(local.held.logical_not(), -1);
    offsets = offsets.contiguous();
    Writes writes{offsets.const_data_ptr<int64_t>(), offsets.numel(), steps_of(sizes, strides), true};
    for (size_t r = 0; r < writes.steps.size(); ++r) writes.dense &= writes.steps[r] == static_cast<int64_t>(r);
    visit_dtype(context.output_meta(0).dtype, [&]<class T>() {
      const T* from = static_cast<const T*>(values.const_data_ptr());
      T* to = static_cast<T*>(out.mutable_data_ptr());
      attributes.accumulate ? accumulate(writes, from, to) : assign(writes, from, to);
    });
  }
  set_output(context, 0, std::move(out));
}
#endif

// A bool mask over x's first dims and one value: no positions are read.
Tensor put_where(const Tensor& x, const Tensor& given, const Tensor& value, const Where& place_of_call) {
  Tensor mask = given;
  while (mask.ndim() < x.ndim()) mask = unsqueeze(mask, -1, place_of_call);
  Tensor operands[] = {x, mask, value};
  Placements targets[] = {x.placements(), mask.placements(), Placements(x.placements().size(), Replicate())};
  if (x.mesh() == mask.mesh() && x.mesh() == value.mesh()) {
    for (int64_t axis = 0; axis < targets[0].size(); ++axis) {
      Placement &of_x = targets[0][axis], &of_mask = targets[1][axis];
      if (of_x.is_replicate() && of_mask.is_shard()) of_x = of_mask;
      if (of_x.is_shard()) {
        of_mask = mask.shape()[of_x.dim] == x.shape()[of_x.dim] ? of_x : Replicate();
      } else {
        of_mask = Replicate();
      }
      if (of_x.is_replicate() && value.layout().placement(axis).is_partial(kSum)) of_x = Partial();
      if (of_x.is_partial()) targets[2][axis] = of_x;
    }
    place("index_put", operands, targets, place_of_call);
  }
  return where(operands[1], operands[2], operands[0], place_of_call);
}

std::vector<Sample> index_put_samples() {
  const auto call = [](bool accumulate) {
    return [accumulate](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{index_put(in[0], {in[1], in[2]}, in[3], accumulate)};
    };
  };
  const auto rows = [](bool accumulate) {
    return [accumulate](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{index_put(in[0], {std::nullopt, in[1]}, in[2], accumulate)};
    };
  };
  return {
      {.name = "columns", .inputs = {{{5, 3}}, indices_below(3, {4}), {{5, 4}}}, .call = rows(false)},
      {.name = "columns, accumulating, broadcast",
       .inputs = {{{5, 3}, kFloat64}, indices_below(3, {2, 2}), {{5, 1, 2}, kFloat64}},
       .call = rows(true)},
      {.name = "elements",
       .inputs = {{{4, 4}}, indices_below(4, {4}), indices_below(4, {4}), {{4}}},
       .call = call(false)},
      {.name = "elements, accumulating, integers, size 1",
       .inputs = {{{5, 1}, kInt32, SampleFill::kIota, 0, false},
                  indices_below(5, {3}, kInt32),
                  indices_below(1, {3}),
                  {{3}, kInt32, SampleFill::kIota, 0, false}},
       .call = call(true)},
      {.name = "mask, one value",
       .inputs = {{{5, 3}}, {{5}, kBool, SampleFill::kBool}, {{}}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{index_put(in[0], {in[1]}, in[2])}; }},
      {.name = "mask, rows",
       .inputs = {{{5, 3}}, {{5}, kBool, SampleFill::kBool}, {{3}}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{index_put(in[0], {in[1]}, in[2])}; }}};
}
std::vector<Sample> index_add_samples() {
  const auto call = [](int64_t dim, Number alpha) {
    return [dim, alpha](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{index_add(in[0], dim, in[1], in[2], alpha)};
    };
  };
  return {{.name = "rows", .inputs = {{{5, 3}}, indices_below(5, {7}), {{7, 3}}}, .call = call(0, 1)},
          {.name = "columns, size 1",
           .inputs = {{{1, 4}, kFloat64}, indices_below(4, {3}), {{1, 3}, kFloat64}},
           .call = call(1, 0.5)}};
}
std::vector<Sample> index_copy_samples() {
  const auto call = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{index_copy(in[0], dim, in[1], in[2])}; };
  };
  return {{.name = "rows", .inputs = {{{5, 3}}, indices_below(5, {4}), {{4, 3}}}, .call = call(0)},
          {.name = "columns, size 1",
           .inputs = {{{1, 4}, kFloat64}, indices_below(4, {3}), {{1, 3}, kFloat64}},
           .call = call(1)}};
}
std::vector<Sample> index_fill_samples() {
  const auto call = [](int64_t dim, Number value) {
    return [dim, value](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{index_fill(in[0], dim, in[1], value)};
    };
  };
  return {{.name = "rows", .inputs = {{{5, 3}}, indices_below(5, {4})}, .call = call(0, 2.5)},
          {.name = "columns, size 1", .inputs = {{{1, 4}, kFloat64}, indices_below(4, {3})}, .call = call(1, 0)}};
}
std::vector<Sample> put_samples() {
  const auto call = [](bool accumulate) {
    return [accumulate](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{put(in[0], in[1], in[2], accumulate)};
    };
  };
  return {{.name = "uneven", .inputs = {{{5, 3}}, indices_below(15, {7}), {{7}}}, .call = call(false)},
          {.name = "accumulating, size 1",
           .inputs = {{{4, 1}, kFloat64}, indices_below(4, {5}), {{5}, kFloat64}},
           .call = call(true)}};
}

// Of index_add, index_copy and index_fill: x with values at `index` of `dim`.
Tensor put_along(const char* op, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 bool accumulate, const Where& where) {
  need_index(op, index, where);
  need_same_dtype(op, x, source, where);
  const int64_t d = normalize_dim(dim, x.ndim(), op, where);
  if (index.ndim() > 1) {
    throw at_line(ShapeError(std::string("[") + op + "] index is " + index.shape().str() + ", must have one dim"),
                  where);
  }
  const Tensor list = index.ndim() == 0 ? unsqueeze(index, 0, where) : index;
  Shape expected = x.shape();
  expected[d] = list.shape()[0];
  Tensor values = source;
  if (source.ndim() == 0) {
    values = broadcast_to(op, source, expected, where);
  } else if (source.shape() != expected) {
    throw at_line(
        ShapeError(std::string("[") + op + "] source is " + source.shape().str() + ", must be " + expected.str()),
        where);
  }
  return put_values(op, x, {list}, values, {.dims = {d}, .wraps = false, .accumulate = accumulate}, false, where);
}

}  // namespace

constinit OperatorDef index_put_op = {.name = "index_put",
                                      .signature = "index_put(x, indices, values, accumulate) -> Tensor",
                                      .attributes = attribute_codec<IndexAttrs>(),
                                      .infer = infer,
                                      .rule = rule,
                                      .kernel = DTORCH_KERNEL(kernel),
                                      .gradient = gradient,
                                      .samples = index_put_samples,
                                      .placement_class = PlacementClass::kCombines,
                                      .linear_in = "x and values together",
                                      .saved_inputs = 0xFFFFFFFEu};
// Compositions.
constinit OperatorDef index_add_op = {.name = "index_add",
                                      .signature = "index_add(x, dim, index, source, alpha) -> Tensor",
                                      .samples = index_add_samples,
                                      .placement_class = PlacementClass::kCombines,
                                      .linear_in = "x and source together"};
constinit OperatorDef index_copy_op = {.name = "index_copy",
                                       .signature = "index_copy(x, dim, index, source) -> Tensor",
                                       .samples = index_copy_samples,
                                       .placement_class = PlacementClass::kCombines,
                                       .linear_in = "x and source together"};
constinit OperatorDef index_fill_op = {.name = "index_fill",
                                       .signature = "index_fill(x, dim, index, value) -> Tensor",
                                       .samples = index_fill_samples,
                                       .placement_class = PlacementClass::kCombines,
                                       .linear_in = "x"};
constinit OperatorDef put_op = {.name = "put",
                                .signature = "put(x, index, source, accumulate) -> Tensor",
                                .samples = put_samples,
                                .placement_class = PlacementClass::kCombines,
                                .linear_in = "x and source together"};

namespace indexing {

Tensor put_values(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                  const IndexAttrs& attributes, bool keep_pending, const Where& where) {
  const Put put = attributes.accumulate ? Put::kAdd : Put::kAssign;
  const Placed placed =
      place_put(op, x, indices, values, dims_of(x.shape(), indices.size(), indices[0].shape(), attributes), put, where);
  const Tensor out = std::move(record_list(index_put_op, attributes, placed.inputs, 1, where)[0]);
  return keep_pending ? out : finish(out, placed.result, where);
}

}  // namespace indexing

Tensor index_put(const Tensor& x, const std::vector<std::optional<Tensor>>& indices, const Tensor& values,
                 bool accumulate, Where where) {
  SourceScope scope(where);
  need_same_dtype("index_put", x, values, where);
  const bool one_mask = indices.size() == 1 && indices[0] && indices[0]->dtype() == kBool;
  if (one_mask && values.ndim() == 0 && !accumulate) {
    const Shape& mask = indices[0]->shape();
    const bool fits = mask.ndim() <= x.ndim() && std::equal(mask.begin(), mask.end(), x.shape().begin());
    if (fits) return put_where(x, *indices[0], values, where);
  }
  const IndexList list = index_list("index_put", x, indices, where);
  const Tensor whole = broadcast_to("index_put", values, list.picked, where);
  if (list.indices.empty()) return accumulate ? add(x, whole, where) : slice_scatter(x, whole, 0, {}, {}, 1, where);
  return put_values("index_put", x, list.indices, whole, {.dims = list.dims, .accumulate = accumulate}, false, where);
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Number alpha, Where where) {
  SourceScope scope(where);
  if (alpha.is_floating && !is_floating(x.dtype())) {
    throw at_line(DTypeError(std::string("[index_add] alpha is a floating number for ") + name_of(x.dtype())), where);
  }
  // A pending maximum or minimum isn't one any more once it is multiplied.
  const Tensor scaled =
      alpha.floating == 1 ? source : mul(reduce_pending("index_add", source, kSum, where), alpha, where);
  return put_along("index_add", x, dim, index, scaled, true, where);
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Where where) {
  SourceScope scope(where);
  return put_along("index_copy", x, dim, index, source, false, where);
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value, Where where) {
  SourceScope scope(where);
  return put_along("index_fill", x, dim, index, number_like(x, value, where), false, where);
}

Tensor put(const Tensor& x, const Tensor& index, const Tensor& source, bool accumulate, Where where) {
  SourceScope scope(where);
  need_index("put", index, where);
  need_same_dtype("put", x, source, where);
  if (source.numel() != index.numel()) {
    throw at_line(ShapeError("[put] source " + source.shape().str() + " and index " + index.shape().str() +
                             " must have one number of elements"),
                  where);
  }
  Tensor values = source;
  if (source.shape() != index.shape()) {
    values = reshape(replicated("put", source, /*pending=*/true, where), {index.shape().begin(), index.shape().end()},
                     where);
  }
  IndexAttrs attributes{.dims = {}, .flat = true, .accumulate = accumulate};
  for (int64_t d = 0; d < x.ndim(); ++d) attributes.dims.push_back(d);
  return put_values("put", x, {index}, values, attributes, false, where);
}

}  // namespace dtorch
