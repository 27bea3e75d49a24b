// What parts.h declares, and scatter_along(g, indices, dim, size): zeros of `size` along dim, to which g's entries are
// added at their indices. Other dims keep their shards; along a sharded dim every device adds its own entries, which
// gives Partial(sum). Linear in g. Halves are added up in float32.
#include "ops/math/parts.h"

#include "ops/math/kernels.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/scatter_add_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {

extern OperatorDef scatter_along_op;

namespace math {
namespace {

struct ScatterAlongAttrs {
  int64_t dim = 0;
  int64_t size = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("size", size);
  }
};

std::vector<OutputMeta> scatter_along_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ScatterAlongAttrs>();
  Shape shape = context.shape(0);
  shape[attributes.dim] = attributes.size;
  return {{shape, context.dtype(0)}};
}

Rule scatter_along_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t dim = context.attributes<ScatterAlongAttrs>().dim, ndim = context.shape(0).ndim();
  Rule rule = pointwise_except_rule(ndim, {}, Linear::kNo);
  rule.input_letters.push_back(rule.input_letters[0]);
  rule.output_letters[0][dim] = kNoLetter;
  for (Row& row : rule.rows) {
    row.inputs.push_back(row.inputs[0]);
    if (row.outputs[0].is_shard(dim)) row.outputs[0] = Partial();
  }
  for (ReduceOp kind : {kSum, kAvg}) rule.rows.push_back({{Partial(kind), Replicate()}, {Partial(kind)}});
  return rule;
}

#if DTORCH_WITH_KERNELS
void scatter_along_kernel(KernelContext& context) {
  const at::Tensor& g = input(context, 0);
  const DType dtype = context.output_meta(0).dtype;
  at::Tensor out = at::zeros(output_sizes(context, 0), g.options().dtype(scalar_type(accumulation_dtype(dtype))));
  const int64_t dim = context.attributes<ScatterAlongAttrs>().dim;
  const at::Tensor &index = input(context, 1), of_elements = g.to(out.scalar_type());
  if (out.is_cpu()) {
    at::cpu::scatter_add_(out, dim, index, of_elements);
  } else {
    out.scatter_add_(dim, index, of_elements);
  }
  set_output(context, 0, out.to(g.scalar_type()));
}
#endif

}  // namespace

Shape shape_by_part(const TensorMeta& x, const std::vector<int64_t>& dims) {
  Shape shape = x.global_shape;
  for (int64_t d : dims) {
    shape[d] = 1;
    for (int8_t axis : x.layout.axes_of_dim(d)) shape[d] *= x.layout.mesh().shape()[axis];
  }
  return shape;
}

int64_t part_number(const TensorMeta& x, int64_t dim, int64_t device) {
  const DeviceMesh& mesh = x.layout.mesh();
  const Shape coordinate = mesh.coordinate_of_index(mesh.index_of(device));
  int64_t number = 0;
  for (int8_t axis : x.layout.axes_of_dim(dim)) number = number * mesh.shape()[axis] + coordinate[axis];
  return number;
}

Layout unsharded_over(const Tensor& x, const std::vector<int64_t>& dims) {
  Placements placements = x.placements();
  for (Placement& placement : placements) {
    if (placement.is_shard() && std::ranges::find(dims, placement.dim) != dims.end()) placement = Replicate();
  }
  return x.layout().with_placements(placements, x.ndim());
}

int64_t count_over(const Shape& shape, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= shape[d];
  return count;
}

std::vector<int64_t> dims_of_call(const std::vector<int64_t>& dims, const Tensor& x, const char* op,
                                  const Where& where) {
  return normalize_dims(dims, x.ndim(), op, where);
}
int64_t dim_of_call(int64_t dim, const Tensor& x, const char* op, const Where& where) {
  return normalize_dim(dim, std::max<int64_t>(1, x.ndim()), op, where);
}

Tensor with_reduced_dims(Tensor reduced, const std::vector<int64_t>& dims, bool keepdim) {
  if (keepdim) return reduced;
  for (int64_t d : dims) reduced = unsqueeze(reduced, d);
  return reduced;
}
Tensor without_reduced_dims(Tensor kept, const std::vector<int64_t>& dims, bool keepdim) {
  if (keepdim) return kept;
  for (size_t i = dims.size(); i > 0; --i) kept = squeeze(kept, dims[i - 1]);
  return kept;
}

std::vector<OutputMeta> reduce_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ReduceAttrs>();
  if (attributes.by_part) return {{shape_by_part(*context.inputs[0], attributes.dims), attributes.dtype}};
  return {{reduced_shape(context.shape(0), attributes.dims, attributes.keepdim), attributes.dtype}};
}

Rule reduce_by_part_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<ReduceAttrs>();
  const int64_t ndim = context.shape(0).ndim();
  if (attributes.by_part) return pointwise_except_rule(ndim, {}, Linear::kNo);
  return reduce_rule(ndim, attributes.dims, attributes.keepdim, std::nullopt, Linear::kNo);
}

Tensor reduce_by_part(const OperatorDef& op, ReduceGradient gradient, const Tensor& x, const ReduceAttrs& attributes,
                      const PartsOf& parts, const Where& where) {
  const Tensor whole = reduce_pending(op.name, x, {}, where);
  if (!any_sharded(whole, attributes.dims)) return record(op, attributes, {&whole}, where);
  require_implicit_redistribution(op.name, whole, unsharded_over(whole, attributes.dims), where);
  ReduceAttrs each = attributes, all = attributes;
  each.by_part = true;
  each.dtype = all.dtype = parts.travels;
  all.order = parts.order_of_parts;
  Tensor result;
  {
    NoGrad no_grad;
    Tensor entries = record(op, each, {&whole}, where);
    for (int64_t d : attributes.dims) entries = shaping::gather_dim(op.name, entries, d, where);
    result = to(record(op, all, {&entries}, where), attributes.dtype, where);
  }
  if (grad_enabled() && whole.requires_grad()) {
    const auto custom = [gradient, attributes, x = whole.detach(), y = result](const GradientContext& context) {
      return std::vector<Tensor>{gradient(context.grad_output(0), x, y, attributes)};
    };
    set_custom_gradient(op.name, {&whole, 1}, {&result, 1}, custom, where);
  }
  return result;
}

Tensor scatter_along(const Tensor& g, const Tensor& indices, int64_t dim, int64_t size, Where where) {
  if (g.ndim() == 0) return g;
  return record(scatter_along_op, ScatterAlongAttrs{dim, size}, {&g, &indices}, where);
}

}  // namespace math

constinit OperatorDef scatter_along_op = {
    .name = "scatter_along",
    .signature = "sort/topk/cummax/cummin(g, indices, dim, size) -> gradient",
    .attributes = attribute_codec<math::ScatterAlongAttrs>(),
    .infer = math::scatter_along_infer,
    .rule = math::scatter_along_rule,
    .kernel = DTORCH_KERNEL(math::scatter_along_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

}  // namespace dtorch
