// reshape(x, shape), view, flatten; contiguous. Layouts of reshape: legal only if every device's part is, element for
// element, its part of the new shape (mesh/signature.h, view_layout); Partial passes. Views where LibTorch's are.
// Gradients: g with x's shape; g.
#include "ops/math/operators.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct ReshapeAttrs {
  Shape shape;  // no -1
  template <class V>
  void fields(V& v) {
    v("shape", shape);
  }
};

std::vector<OutputMeta> reshape_infer(const InferContext& context) {
  return {{context.attributes<ReshapeAttrs>().shape, context.dtype(0)}};
}

std::optional<std::vector<Layout>> reshape_layouts(const InferContext& context, std::span<const OutputMeta> outputs,
                                                   std::string* reason) {
  std::optional<Layout> layout = view_layout(*context.inputs[0], outputs[0].global_shape, reason);
  if (!layout) return std::nullopt;
  return std::vector<Layout>{*layout};
}

std::vector<Tensor> reshape_gradient(const GradientContext& context) {
  const TensorMeta& meta = context.input_meta(0);
  // With the output's layout the way back is legal, since parts correspond.
  const Tensor g = math::place_gradient(context.grad_output(0), context.output_meta(0));
  const Tensor back = record(reshape_op, ReshapeAttrs{meta.global_shape}, {&g}, Where::current());
  return {math::place_gradient(back, meta)};
}

std::vector<OutputMeta> contiguous_infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
Rule contiguous_rule(const InferContext& context, std::span<const OutputMeta>) {
  return all_but_one_rule(context.shape(0).ndim(), -1, 1, 1);
}
std::vector<Tensor> contiguous_gradient(const GradientContext& context) { return {context.grad_output(0)}; }

#if DTORCH_WITH_KERNELS
void reshape_kernel(KernelContext& context) {
  set_output(context, 0, input(context, 0).reshape(output_sizes(context, 0)));
}
void contiguous_kernel(KernelContext& context) { set_output(context, 0, input(context, 0).contiguous()); }
#endif

std::vector<Sample> reshape_samples() {
  return {{.name = "splits and merges dims",
           .inputs = {{{6, 4}}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{reshape(in[0], {3, 2, -1})};
               }},
          {.name = "heads, uneven",
           .inputs = {{{2, 5, 6}, kFloat64}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{view(in[0], {2, 5, 3, 2})};
               }},
          {.name = "merges, size 1",
           .inputs = {{{5, 1, 2}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{flatten(in[0], 1)}; }},
          {.name = "empty", .inputs = {{{0, 4}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{reshape(in[0], {2, 0})};
           }}};
}
std::vector<Sample> contiguous_samples() {
  return {{.name = "of a transpose",
           .inputs = {{{5, 3}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{contiguous(t(in[0]))}; }},
          {.name = "size 1",
           .inputs = {{{1, 3}, kInt64, SampleFill::kIota, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{contiguous(in[0])}; }}};
}

Shape resolve_shape(const char* op, const Tensor& x, const std::vector<int64_t>& shape, const Where& where) {
  const std::string asked = Shape(shape.begin(), shape.end()).str();
  Shape resolved;
  int64_t known = 1, unknown = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    resolved.push_back(shape[d]);
    if (shape[d] == -1 && unknown < 0) {
      unknown = static_cast<int64_t>(d);
    } else if (shape[d] < 0) {
      throw at_line(ShapeError("[" + std::string(op) + "] shape " + asked + " has more than one -1 or a negative size"),
                    where);
    } else {
      known *= shape[d];
    }
  }
  if (unknown >= 0 && known > 0 && x.numel() % known == 0) resolved[unknown] = x.numel() / known;
  if ((unknown >= 0 && resolved[unknown] < 0) || resolved.num_elements() != x.numel()) {
    throw at_line(ShapeError("[" + std::string(op) + "] " + x.shape().str() + " with " + std::to_string(x.numel()) +
                             " elements can't become " + asked),
                  where);
  }
  return resolved;
}

Tensor record_reshape(const char* op, const Tensor& x, const std::vector<int64_t>& shape, const Where& where) {
  return record(reshape_op, ReshapeAttrs{resolve_shape(op, x, shape, where)}, {&x}, where);
}

}  // namespace

constinit OperatorDef reshape_op = {
    .name = "reshape",
    .signature = "reshape(x, shape) -> Tensor",
    .attributes = attribute_codec<ReshapeAttrs>(),
    .infer = reshape_infer,
    .layouts = reshape_layouts,
    .kernel = DTORCH_KERNEL(reshape_kernel),
    .gradient = reshape_gradient,
    .samples = reshape_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef contiguous_op = {
    .name = "contiguous",
    .signature = "contiguous(x) -> Tensor",
    .infer = contiguous_infer,
    .rule = contiguous_rule,
    .kernel = DTORCH_KERNEL(contiguous_kernel),
    .gradient = contiguous_gradient,
    .samples = contiguous_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

Tensor reshape(const Tensor& x, const std::vector<int64_t>& shape, Where where) {
  return record_reshape("reshape", x, shape, where);
}
Tensor view(const Tensor& x, const std::vector<int64_t>& shape, Where where) {
  return record_reshape("view", x, shape, where);
}
Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim, Where where) {
  if (x.ndim() == 0) return reshape(x, {1}, where);
  const int64_t start = normalize_dim(start_dim, x.ndim(), "flatten", where),
                end = normalize_dim(end_dim, x.ndim(), "flatten", where);
  if (start > end)
    throw at_line(ShapeError("[flatten] start_dim " + std::to_string(start_dim) + " comes after end_dim " +
                             std::to_string(end_dim)),
                  where);
  std::vector<int64_t> shape(x.shape().begin(), x.shape().begin() + start);
  shape.push_back(1);
  for (int64_t d = start; d <= end; ++d) shape.back() *= x.shape()[d];
  shape.insert(shape.end(), x.shape().begin() + end + 1, x.shape().end());
  return reshape(x, shape, where);
}
Tensor contiguous(const Tensor& x, Where where) { return record(contiguous_op, NoAttrs{}, {&x}, where); }

Tensor Tensor::reshape(const std::vector<int64_t>& shape, Where where) const {
  return dtorch::reshape(*this, shape, where);
}
Tensor Tensor::view(const std::vector<int64_t>& shape, Where where) const { return dtorch::view(*this, shape, where); }
Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim, Where where) const {
  return dtorch::flatten(*this, start_dim, end_dim, where);
}

}  // namespace dtorch
