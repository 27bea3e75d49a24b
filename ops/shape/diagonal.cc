// diagonal(x, offset, dim1, dim2) is a view of x's elements [i, i + offset] in the two dims, as a new last dim;
// diag_embed writes a last dim there and zeros elsewhere. diag and trace are made of them. Layouts: other dims keep
// their shards, Partial passes. A part that holds whole rows holds their diagonal elements, so sharding dim1 shards the
// diagonal where every row has an element (likewise the columns of dim2), without communication; else the two dims, or
// the diagonal, are gathered first. Gradients: each other.
#include <algorithm>
#include <cstdlib>

#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/diagonal_native.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {

extern OperatorDef diagonal_op, diag_embed_op;

namespace {

using namespace shaping;

struct DiagonalAttrs {
  int64_t offset = 0, dim1 = 0, dim2 = 1;  // of the tensor with both dims
  int64_t rows = 0, columns = 0;           // its sizes in dim1 and dim2
  int64_t along = -1;                      // dim1 or dim2 when the diagonal is sharded with it, else -1
  template <class V>
  void fields(V& v) {
    v("offset", offset);
    v("dim1", dim1);
    v("dim2", dim2);
    v("rows", rows);
    v("columns", columns);
    v("along", along);
  }
  int64_t length() const {
    return std::max<int64_t>(0, std::min(rows + std::min<int64_t>(offset, 0), columns - std::max<int64_t>(offset, 0)));
  }
};

// Every row (column) has an element on the diagonal, so that row (column) i holds element i.
bool covers_rows(const DiagonalAttrs& a) { return a.offset >= 0 && a.length() == a.rows; }
bool covers_columns(const DiagonalAttrs& a) { return a.offset <= 0 && a.length() == a.columns; }

// The diagonal's shape from the whole's.
Shape without_dims(const Shape& shape, const DiagonalAttrs& a) {
  Shape out;
  for (int64_t d = 0; d < shape.ndim(); ++d) {
    if (d != a.dim1 && d != a.dim2) out.push_back(shape[d]);
  }
  return out;
}
std::vector<OutputMeta> diagonal_infer(const InferContext& context) {
  const auto& a = context.attributes<DiagonalAttrs>();
  Shape shape = without_dims(context.shape(0), a);
  shape.push_back(a.length());
  return {{shape, context.dtype(0)}};
}
std::vector<OutputMeta> embed_infer(const InferContext& context) {
  const auto& a = context.attributes<DiagonalAttrs>();
  Shape shape = context.shape(0);
  shape.erase(shape.end() - 1);
  shape.insert(shape.begin() + std::min(a.dim1, a.dim2), a.dim1 < a.dim2 ? a.rows : a.columns);
  shape.insert(shape.begin() + std::max(a.dim1, a.dim2), a.dim1 < a.dim2 ? a.columns : a.rows);
  return {{shape, context.dtype(0)}};
}

// from[d]: the whole's dim that the diagonal's dim d is.
std::vector<int64_t> dims_of_diagonal(int64_t ndim, const DiagonalAttrs& a) {
  std::vector<int64_t> from;
  for (int64_t d = 0; d < ndim; ++d) {
    if (d != a.dim1 && d != a.dim2) from.push_back(d);
  }
  from.push_back(a.along);
  return from;
}
Rule diagonal_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t ndim = context.shape(0).ndim();
  return dim_map_rule(ndim, dims_of_diagonal(ndim, context.attributes<DiagonalAttrs>()));
}
Rule embed_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const int64_t ndim = outputs[0].global_shape.ndim();
  const std::vector<int64_t> from = dims_of_diagonal(ndim, context.attributes<DiagonalAttrs>());
  std::vector<int64_t> back(static_cast<size_t>(ndim), -1);
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] >= 0) back[static_cast<size_t>(from[d])] = static_cast<int64_t>(d);
  }
  return dim_map_rule(context.shape(0).ndim(), back);
}

// The diagonal of x, of which at most one of the dims stays sharded.
Tensor record_diagonal(const char* op, const Tensor& x, DiagonalAttrs a, const Where& where) {
  const auto is_sharded = [&](int64_t dim) { return !x.layout().axes_of_dim(dim).empty(); };
  a.along = covers_rows(a) && is_sharded(a.dim1) ? a.dim1 : covers_columns(a) && is_sharded(a.dim2) ? a.dim2 : -1;
  std::vector<int64_t> blocked = {a.dim1, a.dim2};
  std::erase(blocked, a.along);
  const Tensor gathered = gather_dims(op, x, blocked, where);
  return record(diagonal_op, a, {&gathered}, where);
}
// Zeros but for the diagonal. as: the layout that the result will have, if known, decides whether rows or columns are
// sharded.
Tensor record_embed(const char* op, const Tensor& x, DiagonalAttrs a, const Layout* as, const Where& where) {
  const int64_t last = x.ndim() - 1;
  const auto wanted = [&](int64_t dim) { return as == nullptr || !as->axes_of_dim(dim).empty(); };
  a.along = -1;
  if (!x.layout().axes_of_dim(last).empty()) {
    if (covers_rows(a) && wanted(a.dim1)) {
      a.along = a.dim1;
    } else if (covers_columns(a) && wanted(a.dim2)) {
      a.along = a.dim2;
    }
  }
  const Tensor gathered = a.along >= 0 ? x : gather_dim(op, x, last, where);
  return record(diag_embed_op, a, {&gathered}, where);
}

std::vector<Tensor> diagonal_gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  const Tensor g = record_embed("diagonal", context.grad_output(0), context.attributes<DiagonalAttrs>(), &meta.layout,
                                Where::current());
  return {math::place_gradient(g, meta)};
}
std::vector<Tensor> embed_gradient(const GradientContext& context) {
  const Tensor g =
      record_diagonal("diag_embed", context.grad_output(0), context.attributes<DiagonalAttrs>(), Where::current());
  return {math::place_gradient(g, context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
// The diagonal's offset in a part of the whole.
int64_t local_offset(const DiagonalAttrs& a, const Box& box) {
  return a.offset + box.offset[a.dim1] - box.offset[a.dim2];
}
void diagonal_kernel(KernelContext& context) {
  const auto& a = context.attributes<DiagonalAttrs>();
  set_output(context, 0,
             at::native::diagonal(input(context, 0), local_offset(a, context.input_box(0)), a.dim1, a.dim2));
}
void embed_kernel(KernelContext& context) {
  const auto& a = context.attributes<DiagonalAttrs>();
  const at::Tensor& x = input(context, 0);
  at::Tensor out = at::zeros(output_sizes(context, 0), x.options());
  if (x.numel() > 0) at::native::diagonal(out, local_offset(a, context.output_box(0)), a.dim1, a.dim2).copy_(x);
  set_output(context, 0, out);
}
#endif

std::vector<Sample> diagonal_samples() {
  return {
      {.name = "wide, uneven", .inputs = {{{5, 7}}}, .call = single([](const auto& in) { return diagonal(in[0], 1); })},
      {.name = "tall, below, float64", .inputs = {{{7, 2, 5}, kFloat64}}, .call = single([](const auto& in) {
                                                                            return diagonal(in[0], -1, 0, 2);
                                                                          })},
      {.name = "swapped dims, size 1", .inputs = {{{1, 5, 3}, kFloat64}}, .call = single([](const auto& in) {
                                                                            return diagonal(in[0], 0, -1, 1);
                                                                          })},
      {.name = "outside, integers",
       .inputs = {{{3, 2}, kInt64, SampleFill::kIota, 0, false}},
       .call = single([](const auto& in) { return diagonal(in[0], 4); })}};
}
std::vector<Sample> embed_samples() {
  return {{.name = "uneven", .inputs = {{{2, 5}}}, .call = single([](const auto& in) { return diag_embed(in[0]); })},
          {.name = "offset, swapped dims", .inputs = {{{5, 3}, kFloat64}}, .call = single([](const auto& in) {
                                                                             return diag_embed(in[0], 1, 2, 0);
                                                                           })},
          {.name = "size 1, below", .inputs = {{{1}, kFloat64}}, .call = single([](const auto& in) {
                                                                   return diag_embed(in[0], -2);
                                                                 })}};
}
std::vector<Sample> diag_samples() {
  return {
      {.name = "of a vector", .inputs = {{{5}}}, .call = single([](const auto& in) { return diag(in[0], 1); })},
      {.name = "of a matrix", .inputs = {{{5, 7}, kFloat64}}, .call = single([](const auto& in) {
                                                                return diag(in[0], -1);
                                                              })},
      {.name = "of an empty matrix", .inputs = {{{0, 3}}}, .call = single([](const auto& in) { return diag(in[0]); })}};
}
std::vector<Sample> trace_samples() {
  return {{.name = "square", .inputs = {{{5, 5}}}, .call = single([](const auto& in) { return trace(in[0]); })},
          {.name = "wide, float64", .inputs = {{{5, 7}, kFloat64}}, .call = single([](const auto& in) {
                                                                      return trace(in[0]);
                                                                    })},
          {.name = "size 1, integers",
           .inputs = {{{1, 3}, kInt32, SampleFill::kIota, 0, false}},
           .call = single([](const auto& in) { return trace(in[0]); })}};
}

void need_two_dims(const char* op, int64_t dim1, int64_t dim2, const Where& where) {
  if (dim1 != dim2) return;
  throw at_line(ShapeError("[" + std::string(op) + "] both dims are " + std::to_string(dim1) + ", must differ"), where);
}

}  // namespace

constinit OperatorDef diagonal_op = {
    .name = "diagonal",
    .signature = "diagonal(x, offset, dim1, dim2) -> Tensor",
    .attributes = attribute_codec<DiagonalAttrs>(),
    .infer = diagonal_infer,
    .rule = diagonal_rule,
    .kernel = DTORCH_KERNEL(diagonal_kernel),
    .gradient = diagonal_gradient,
    .samples = diagonal_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef diag_embed_op = {
    .name = "diag_embed",
    .signature = "diag_embed(x, offset, dim1, dim2) -> Tensor",
    .attributes = attribute_codec<DiagonalAttrs>(),
    .infer = embed_infer,
    .rule = embed_rule,
    .kernel = DTORCH_KERNEL(embed_kernel),
    .gradient = embed_gradient,
    .samples = embed_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef diag_op =
    composition("diag", "diag(x, diagonal) -> Tensor", diag_samples, "x", PlacementClass::kCombines);
constinit OperatorDef trace_op =
    composition("trace", "trace(x) -> Tensor", trace_samples, "x", PlacementClass::kCombines);

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2, Where where) {
  DiagonalAttrs a{.offset = offset,
                  .dim1 = normalize_dim(dim1, x.ndim(), "diagonal", where),
                  .dim2 = normalize_dim(dim2, x.ndim(), "diagonal", where)};
  need_two_dims("diagonal", a.dim1, a.dim2, where);
  a.rows = x.shape()[a.dim1];
  a.columns = x.shape()[a.dim2];
  return record_diagonal("diagonal", x, a, where);
}
Tensor diag_embed(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2, Where where) {
  if (x.ndim() == 0 || x.ndim() == kMaxDims) {
    throw at_line(ShapeError("[diag_embed] x has " + std::to_string(x.ndim()) + " dims, allowed are 1 to " +
                             std::to_string(kMaxDims - 1)),
                  where);
  }
  DiagonalAttrs a{.offset = offset,
                  .dim1 = normalize_dim(dim1, x.ndim() + 1, "diag_embed", where),
                  .dim2 = normalize_dim(dim2, x.ndim() + 1, "diag_embed", where)};
  need_two_dims("diag_embed", a.dim1, a.dim2, where);
  a.rows = a.columns = x.shape().back() + std::abs(offset);
  return record_embed("diag_embed", x, a, nullptr, where);
}
Tensor diag(const Tensor& x, int64_t diagonal, Where where) {
  if (x.ndim() == 1) return diag_embed(x, diagonal, 0, 1, where);
  if (x.ndim() == 2) return dtorch::diagonal(x, diagonal, 0, 1, where);
  throw at_line(ShapeError("[diag] needs a vector or a matrix, got " + x.shape().str()), where);
}
Tensor trace(const Tensor& x, Where where) {
  if (x.ndim() != 2) throw at_line(ShapeError("[trace] needs a matrix, got " + x.shape().str()), where);
  return sum(diagonal(x, 0, 0, 1, where), where);
}

}  // namespace dtorch
