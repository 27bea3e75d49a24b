// cat(tensors, dim) and stack. Layouts: other dims keep their shards; all Partial alike passes (linear); along a
// sharded dim the tensors are gathered first. Tensors of different dtypes are promoted. Gradient: each tensor's slice
// of g.
#include "ops/math/operators.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/cat.h>
#include <ATen/ops/cat_cpu_dispatch.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct CatAttrs {
  int64_t dim = 0;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
  }
};

std::vector<OutputMeta> cat_infer(const InferContext& context) {
  const int64_t dim = context.attributes<CatAttrs>().dim;
  Shape shape = context.shape(0);
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    const Shape& other = context.shape(i);
    Shape expected = shape;
    if (other.ndim() == shape.ndim()) expected[dim] = other[dim];
    if (expected != other) {
      throw ShapeError("[cat] tensor " + std::to_string(i) + " is " + other.str() + ", the first is " +
                       context.shape(0).str() + "; all dims but " + std::to_string(dim) + " must be equal");
    }
    shape[dim] += other[dim];
  }
  return {{shape, context.dtype(0)}};
}

Rule cat_rule(const InferContext& context, std::span<const OutputMeta>) {
  return all_but_one_rule(context.shape(0).ndim(), context.attributes<CatAttrs>().dim, context.inputs.size(), 1);
}

std::vector<Tensor> cat_gradient(const GradientContext& context) {
  const int64_t dim = context.attributes<CatAttrs>().dim;
  const Tensor g = gather_dim("cat", context.grad_output(0), dim, Where::current());
  std::vector<Tensor> gradients(context.num_inputs());
  int64_t start = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t length = context.input_meta(i).global_shape[dim];
    if (context.needs_grad(i))
      gradients[i] = math::place_gradient(narrow(g, dim, start, length), context.input_meta(i));
    start += length;
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
void cat_kernel(KernelContext& context) {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < context.num_inputs(); ++i) tensors.push_back(input(context, i));
  const int64_t dim = context.attributes<CatAttrs>().dim;
  const at::ITensorListRef list(tensors);
  set_output(context, 0, tensors[0].is_cpu() ? at::cpu::cat(list, dim) : at::cat(list, dim));
}
#endif

std::vector<Sample> cat_samples() {
  return {{.name = "uneven",
           .inputs = {{{5, 3}}, {{5, 2}}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{cat(in, 1)}; }},
          {.name = "one empty, mixed dtypes",
           .inputs = {{{0, 3}, kFloat64}, {{2, 3}, kFloat32}, {{1, 3}, kFloat64}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{cat(in)}; },
           .tolerance = 1e-5},
          {.name = "stack", .inputs = {{{5, 3}}, {{5, 3}}}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{stack(in, -1)};
           }}};
}

}  // namespace

constinit OperatorDef cat_op = {
    .name = "cat",
    .signature = "cat(tensors, dim) -> Tensor",
    .attributes = attribute_codec<CatAttrs>(),
    .infer = cat_infer,
    .rule = cat_rule,
    .kernel = DTORCH_KERNEL(cat_kernel),
    .gradient = cat_gradient,
    .samples = cat_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "all",
    .saved_inputs = 0,
};

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim, Where where) {
  if (tensors.empty()) throw at_line(UserError("[cat] got no tensors"), where);
  if (tensors[0].ndim() == 0) throw at_line(ShapeError("[cat] tensors without dims can't be joined; use stack"), where);
  const int64_t d = normalize_dim(dim, tensors[0].ndim(), "cat", where);
  DType dtype = tensors[0].dtype();
  for (const Tensor& tensor : tensors) dtype = promote(dtype, tensor.dtype());
  std::vector<Tensor> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back(gather_dim("cat", to(tensor, dtype, where), d, where));
  return std::move(record_list(cat_op, CatAttrs{d}, inputs, 1, where)[0]);
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim, Where where) {
  if (tensors.empty()) throw at_line(UserError("[stack] got no tensors"), where);
  const int64_t d = normalize_dim(dim, tensors[0].ndim() + 1, "stack", where);
  std::vector<Tensor> inputs;
  for (const Tensor& tensor : tensors) {
    if (tensor.shape() != tensors[0].shape()) {
      throw at_line(ShapeError("[stack] tensors must have one shape, got " + tensors[0].shape().str() + " and " +
                               tensor.shape().str()),
                    where);
    }
    inputs.push_back(unsqueeze(tensor, d, where));
  }
  return cat(inputs, d, where);
}

}  // namespace dtorch
