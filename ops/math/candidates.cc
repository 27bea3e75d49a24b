// arg_candidates(x, dims): this device's best value and its global index; a reduced dim becomes one entry a part,
// sharded as before. arg_combine(values, indices, dims): the best candidate, the smallest index among equals. Together
// they are max, min, argmax and argmin over sharded dims: one value and one index a part and row travel. No gradients.
#include <algorithm>
#include <limits>

#include "ops/create/aten_call.h"
#include "ops/math/extreme.h"
#include "ops/math/kernels.h"
#include "ops/move/combine.h"
#include "ops/shape/operators.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/amax.h>
#include <ATen/ops/amax_cpu_dispatch.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/amin_cpu_dispatch.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmax_cpu_dispatch.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/argmin_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/where_cpu_dispatch.h>
#include <ATen/ops/zeros_like.h>
#endif

namespace dtorch {

extern OperatorDef arg_candidates_op, arg_combine_op;

namespace math {
namespace {

struct CandidateAttrs {
  std::vector<int64_t> dims;  // ascending
  bool keepdim = false;       // of arg_combine
  bool largest = true;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
    v("largest", largest);
  }
};

std::vector<OutputMeta> candidates_infer(const InferContext& context) {
  refuse_bool(context);
  Shape shape = context.shape(0);
  const Layout& layout = context.inputs[0]->layout;
  for (int64_t d : context.attributes<CandidateAttrs>().dims) {
    shape[d] = 1;
    for (int8_t axis : layout.axes_of_dim(d)) shape[d] *= layout.mesh().shape()[axis];
  }
  return {{shape, context.dtype(0)}, {shape, kInt64}};
}
Rule candidates_rule(const InferContext& context, std::span<const OutputMeta>) {
  Rule rule = pointwise_except_rule(context.shape(0).ndim(), {}, Linear::kNo);
  rule.output_letters.push_back(rule.output_letters[0]);
  for (Row& row : rule.rows) row.outputs.push_back(row.outputs[0]);
  return rule;
}

std::vector<OutputMeta> combine_infer(const InferContext& context) {
  const auto& attributes = context.attributes<CandidateAttrs>();
  const Shape shape = reduced_shape(context.shape(0), attributes.dims, attributes.keepdim);
  return {{shape, context.dtype(0)}, {shape, kInt64}};
}
Rule combine_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<CandidateAttrs>();
  Rule rule = reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, std::nullopt, Linear::kNo);
  rule.input_letters.push_back(rule.input_letters[0]);
  rule.output_letters.push_back(rule.output_letters[0]);
  for (Row& row : rule.rows) {
    row.inputs.push_back(row.inputs[0]);
    row.outputs.push_back(row.outputs[0]);
  }
  return rule;
}

#if DTORCH_WITH_KERNELS
// Global row-major numbers of local ones.
at::Tensor global_numbers(const at::Tensor& local_numbers, const Box& box, const Shape& global_shape) {
  const Shape local_strides = contiguous_strides(box.size), strides = contiguous_strides(global_shape);
  if (!local_numbers.is_cpu()) {
    at::Tensor left = local_numbers, number = at::zeros_like(left);
    for (int64_t d = 0; d < box.ndim(); ++d) {
      number.add_(left.div(local_strides[d], "floor").add_(box.offset[d]), strides[d]);
      left = left.remainder(local_strides[d]);
    }
    return number;
  }
  at::Tensor rest = local_numbers.contiguous(), global = at::empty(local_numbers.sizes(), local_numbers.options());
  const int64_t* from = rest.const_data_ptr<int64_t>();
  int64_t* to = global.data_ptr<int64_t>();
  for (int64_t i = 0; i < rest.numel(); ++i) {
    int64_t left = from[i];
    to[i] = 0;
    for (int64_t d = 0; d < box.ndim(); ++d) {
      to[i] += (box.offset[d] + left / local_strides[d]) * strides[d];
      left %= local_strides[d];
    }
  }
  return global;
}

void candidates_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<CandidateAttrs>();
  const at::Tensor& x = input(context, 0);
  const Box& box = context.input_box(0);
  if (box.empty()) {
    const DType dtype = context.output_meta(0).dtype;
    set_output(context, 0, at::full(output_sizes(context, 0), worst_value(dtype, attributes.largest), x.options()));
    set_output(context, 1,
               at::full(output_sizes(context, 1), std::numeric_limits<int64_t>::max(), x.options().dtype(at::kLong)));
    return;
  }
  const bool one_dim = attributes.dims.size() == 1;
  const std::optional<int64_t> dim = one_dim ? std::optional(attributes.dims[0]) : std::nullopt;
  const at::Tensor local =
      attributes.largest ? DTORCH_ATEN(argmax)(x, dim, one_dim) : DTORCH_ATEN(argmin)(x, dim, one_dim);
  if (one_dim) {
    set_output(context, 0, x.gather(*dim, local));
    set_output(context, 1, local.add(box.offset[*dim]));
  } else {
    set_output(context, 0, x.reshape({-1}).gather(0, local.reshape({1})).reshape(output_sizes(context, 0)));
    set_output(context, 1,
               global_numbers(local, box, context.input_meta(0).global_shape).reshape(output_sizes(context, 1)));
  }
}

void combine_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<CandidateAttrs>();
  const at::Tensor &values = input(context, 0), &indices = input(context, 1);
  const at::Tensor best = attributes.largest ? DTORCH_ATEN(amax)(values, attributes.dims, true)
                                             : DTORCH_ATEN(amin)(values, attributes.dims, true);
  // A candidate that isn't equal to itself is NaN, and then so is the best.
  const at::Tensor chosen = values.eq(best).logical_or(values.ne(values));
  const at::Tensor none = at::full({}, std::numeric_limits<int64_t>::max(), indices.options());
  const at::Tensor index = DTORCH_ATEN(amin)(DTORCH_ATEN(where)(chosen, indices, none), attributes.dims, true);
  set_output(context, 0, best.reshape(output_sizes(context, 0)));
  set_output(context, 1, index.reshape(output_sizes(context, 1)));
}
#endif

}  // namespace

bool any_sharded(const Tensor& x, const std::vector<int64_t>& dims) {
  for (int64_t d : dims) {
    if (!x.layout().axes_of_dim(d).empty()) return true;
  }
  return false;
}

ValueAndIndex combined_extreme(const char* op, const Tensor& x, const std::vector<int64_t>& dims, bool keepdim,
                               bool largest, const Where& where) {
  Placements fixed = x.placements();
  for (Placement& placement : fixed) {
    if (placement.is_shard() && std::ranges::find(dims, placement.dim) != dims.end()) placement = Replicate();
  }
  require_implicit_redistribution(op, x, x.layout().with_placements(fixed, x.ndim()), where);
  NoGrad no_grad;
  const CandidateAttrs attributes{dims, keepdim, largest};
  auto [values, indices] = record_many<2>(arg_candidates_op, attributes, {&x}, where);
  for (int64_t d : dims) {
    values = shaping::gather_dim(arg_combine_op.name, values, d, where);
    indices = shaping::gather_dim(arg_combine_op.name, indices, d, where);
  }
  auto [value, index] = record_many<2>(arg_combine_op, attributes, {&values, &indices}, where);
  return {value, index};
}

}  // namespace math

constinit OperatorDef arg_candidates_op = {
    .name = "arg_candidates",
    .signature = "max/min/argmax/argmin(x, dims) -> candidates of every part (values, indices)",
    .attributes = attribute_codec<math::CandidateAttrs>(),
    .infer = math::candidates_infer,
    .rule = math::candidates_rule,
    .kernel = DTORCH_KERNEL(math::candidates_kernel),
    .saved_inputs = 0,
};
constinit OperatorDef arg_combine_op = {
    .name = "arg_combine",
    .signature = "max/min/argmax/argmin(values, indices, dims) -> best candidate (value, index)",
    .attributes = attribute_codec<math::CandidateAttrs>(),
    .infer = math::combine_infer,
    .rule = math::combine_rule,
    .kernel = DTORCH_KERNEL(math::combine_kernel),
    .saved_inputs = 0,
};

}  // namespace dtorch
