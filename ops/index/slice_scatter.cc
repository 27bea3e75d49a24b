// slice_scatter(x, src, dim, start, end, step): x with that slice replaced by src; select_scatter and diagonal_scatter
// likewise. Layouts: x keeps its own; other dims are sharded in src alike, along `dim` every device takes what falls
// into its part from a whole src. Pending values of one kind in both pass. Gradients: x: g with 0 in the slice; src:
// g's slice.
#include <algorithm>

#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/math/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"
#include "runtime/client/graph.h"

namespace dtorch {
namespace {

using namespace indexing;

struct SliceScatterAttrs {
  int64_t dim = 0, start = 0, end = 0, step = 1;  // 0 <= start <= end <= size
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("start", start);
    v("end", end);
    v("step", step);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& a = context.attributes<SliceScatterAttrs>();
  Shape expected = context.shape(0);
  expected[a.dim] = (a.end - a.start + a.step - 1) / a.step;
  if (context.shape(1) != expected) {
    throw ShapeError("[slice_scatter] src is " + context.shape(1).str() + ", the slice of x " + context.shape(0).str() +
                     " is " + expected.str());
  }
  return {{context.shape(0), context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return put_rule(sliced_dims(context.shape(0).ndim(), context.attributes<SliceScatterAttrs>().dim), Put::kAssign,
                  context.inputs);
}

Tensor put_slice(const char* op, const Tensor& x, const Tensor& src, const SliceScatterAttrs& attributes,
                 const Where& where) {
  need_same_dtype(op, x, src, where);
  if (x.ndim() != src.ndim()) return record(slice_scatter_op, attributes, {&x, &src}, where);  // says what is wrong
  const Placed placed = place_put(op, x, {}, src, sliced_dims(x.ndim(), attributes.dim), Put::kAssign, where);
  return record(slice_scatter_op, attributes, {&placed.inputs[0], &placed.inputs[1]}, where);
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const auto& a = context.attributes<SliceScatterAttrs>();
  const Tensor& g = context.grad_output(0);
  const TensorMeta& src = context.input_meta(1);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) {
    const Tensor zero = zeros_with(g, src.global_shape, src.layout.without_partial(), Where::current());
    gradients[0] =
        math::place_gradient(put_slice("slice_scatter", g, zero, a, Where::current()), context.input_meta(0));
  }
  if (context.needs_grad(1)) gradients[1] = math::place_gradient(slice(g, a.dim, a.start, a.end, a.step), src);
  return gradients;
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  const auto& a = context.attributes<SliceScatterAttrs>();
  const Box& box = context.output_box(0);
  at::Tensor out = writable_input(context);
  // Numbers of the slice's first position in the part and of the first after it.
  const auto number_at = [&](int64_t position) {
    return std::clamp<int64_t>((position - a.start + a.step - 1) / a.step, 0, input(context, 1).size(a.dim));
  };
  const int64_t first = number_at(std::max(box.offset[a.dim], a.start));
  const int64_t last = number_at(std::max(box.offset[a.dim] + box.size[a.dim], a.start));
  if (first < last) {
    const int64_t begin = a.start + first * a.step - box.offset[a.dim];
    out.slice(a.dim, begin, begin + (last - first - 1) * a.step + 1, a.step)
        .copy_(input(context, 1).narrow(a.dim, first, last - first));
  }
  set_output(context, 0, std::move(out));
}
#endif

std::vector<Sample> slice_samples() {
  const auto call = [](int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{slice_scatter(in[0], in[1], dim, start, end, step)};
    };
  };
  return {{.name = "rows, uneven", .inputs = {{{5, 3}}, {{3, 3}}}, .call = call(0, 1, -1, 1)},
          {.name = "every second column",
           .inputs = {{{2, 7}, kFloat64}, {{2, 3}, kFloat64}},
           .call = call(-1, 2, std::nullopt, 2)},
          {.name = "the whole of size 1, integers",
           .inputs = {{{4, 1}, kInt32, SampleFill::kIota, 0, false}, {{4, 1}, kInt32, SampleFill::kIota, 0, false}},
           .call = call(1, std::nullopt, 99, 1)},
          {.name = "an empty slice", .inputs = {{{5, 2}}, {{0, 2}}}, .call = call(0, 3, 2, 1)}};
}
std::vector<Sample> select_samples() {
  return {
      {.name = "row",
       .inputs = {{{5, 3}}, {{3}}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{select_scatter(in[0], in[1], 0, -2)}; }},
      {.name = "column, size 1",
       .inputs = {{{4, 1, 3}, kFloat64}, {{4, 1}, kFloat64}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{select_scatter(in[0], in[1], 2, 1)}; }}};
}
std::vector<Sample> diagonal_samples() {
  return {
      {.name = "above",
       .inputs = {{{5, 3}}, {{2}}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{diagonal_scatter(in[0], in[1], 1)}; }},
      {.name = "below, of other dims, size 1",
       .inputs = {{{4, 1, 3}, kFloat64}, {{1, 3}, kFloat64}},
       .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{diagonal_scatter(in[0], in[1], -1, 0, 2)};
       }}};
}

}  // namespace

constinit OperatorDef slice_scatter_op = {.name = "slice_scatter",
                                          .signature = "slice_scatter(x, src, dim, start, end, step) -> Tensor",
                                          .attributes = attribute_codec<SliceScatterAttrs>(),
                                          .infer = infer,
                                          .rule = rule,
                                          .kernel = DTORCH_KERNEL(kernel),
                                          .gradient = gradient,
                                          .samples = slice_samples,
                                          .placement_class = PlacementClass::kCombines,
                                          .linear_in = "x and src together",
                                          .saved_inputs = 0};
// Compositions.
constinit OperatorDef select_scatter_op = {.name = "select_scatter",
                                           .signature = "select_scatter(x, src, dim, index) -> Tensor",
                                           .samples = select_samples,
                                           .placement_class = PlacementClass::kCombines,
                                           .linear_in = "x and src together"};
constinit OperatorDef diagonal_scatter_op = {.name = "diagonal_scatter",
                                             .signature = "diagonal_scatter(x, src, offset, dim1, dim2) -> Tensor",
                                             .samples = diagonal_samples,
                                             .placement_class = PlacementClass::kCombines,
                                             .linear_in = "x and src together"};

Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step, Where where) {
  SourceScope scope(where);
  const int64_t d = normalize_dim(dim, x.ndim(), "slice_scatter", where), size = x.shape()[d];
  if (step <= 0) {
    throw at_line(UserError("[slice_scatter] step is " + std::to_string(step) + ", must be positive"), where);
  }
  const auto clipped = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t first = clipped(start.value_or(0));
  return put_slice("slice_scatter", x, src, {d, first, std::max(first, clipped(end.value_or(size))), step}, where);
}

Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index, Where where) {
  SourceScope scope(where);
  const int64_t d = normalize_dim(dim, x.ndim(), "select_scatter", where), size = x.shape()[d];
  if (index < -size || index >= size) {
    throw at_line(ShapeError("[select_scatter] index " + std::to_string(index) + " is outside dim " +
                             std::to_string(d) + " of " + x.shape().str()),
                  where);
  }
  if (src.ndim() + 1 != x.ndim()) {
    throw at_line(ShapeError("[select_scatter] src is " + src.shape().str() + ", x " + x.shape().str() +
                             ": it needs one dim less"),
                  where);
  }
  const int64_t at = index < 0 ? index + size : index;
  return put_slice("select_scatter", x, unsqueeze(src, d, where), {d, at, at + 1, 1}, where);
}

Tensor diagonal_scatter(const Tensor& x, const Tensor& src, int64_t offset, int64_t dim1, int64_t dim2, Where where) {
  SourceScope scope(where);
  need_same_dtype("diagonal_scatter", x, src, where);
  const int64_t d1 = normalize_dim(dim1, x.ndim(), "diagonal_scatter", where),
                d2 = normalize_dim(dim2, x.ndim(), "diagonal_scatter", where);
  if (d1 == d2) throw at_line(ShapeError("[diagonal_scatter] dim1 and dim2 are the same dim"), where);
  const int64_t row = std::max<int64_t>(0, -offset), column = std::max<int64_t>(0, offset);
  const int64_t length = std::max<int64_t>(0, std::min(x.shape()[d1] - row, x.shape()[d2] - column));
  Shape expected;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (d != d1 && d != d2) expected.push_back(x.shape()[d]);
  }
  expected.push_back(length);
  if (src.shape() != expected) {
    throw at_line(ShapeError("[diagonal_scatter] src is " + src.shape().str() + ", the diagonal of x " +
                             x.shape().str() + " is " + expected.str()),
                  where);
  }
  const GraphScope graph(Graph(IntrusivePtr<GraphCore>(&x.value()->graph())));
  std::vector<Tensor> indices = {arange(row, row + length, {.mesh = x.mesh()}, where),
                                 arange(column, column + length, {.mesh = x.mesh()}, where)};
  if (d1 > d2) std::swap(indices[0], indices[1]);
  const std::vector<int64_t> dims = {std::min(d1, d2), std::max(d1, d2)};
  // The diagonal is src's last dim, and stands among the picked dims where x[...] has it.
  const Dims picked = indexed_dims(x.ndim(), dims, 2, 1);
  const int64_t place = std::ranges::find(picked.index, 0) - picked.index.begin();
  std::vector<int64_t> order;
  for (int64_t d = 0; d + 1 < src.ndim(); ++d) order.push_back(d);
  order.insert(order.begin() + place, src.ndim() - 1);
  return put_values("diagonal_scatter", x, indices, permute(src, order, where), {.dims = dims}, false, where);
}

}  // namespace dtorch
