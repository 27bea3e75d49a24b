// split(x, sizes, dim) and chunk(x, chunks, dim): parts along a dim, as views. Layouts: other dims keep their shards,
// Partial passes; a sharded dim is refused (a part would lie on some devices only). Gradient: the parts' gradients
// joined, zeros for those without one.
#include "ops/create/functions.h"
#include "ops/math/operators.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/slice_native.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace shaping;

struct SplitAttrs {
  int64_t dim = 0;
  std::vector<int64_t> sizes;
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("sizes", sizes);
  }
};

std::vector<OutputMeta> split_infer(const InferContext& context) {
  const auto& attributes = context.attributes<SplitAttrs>();
  std::vector<OutputMeta> outputs;
  for (int64_t size : attributes.sizes) {
    Shape shape = context.shape(0);
    shape[attributes.dim] = size;
    outputs.push_back({shape, context.dtype(0)});
  }
  return outputs;
}

Rule split_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  return all_but_one_rule(context.shape(0).ndim(), context.attributes<SplitAttrs>().dim, 1, outputs.size());
}

std::vector<Tensor> split_gradient(const GradientContext& context) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < context.num_outputs(); ++i) {
    if (context.grad_output(i).defined()) {
      parts.push_back(math::place_gradient(context.grad_output(i), context.output_meta(i)));
      continue;
    }
    const TensorMeta& meta = context.output_meta(i);
    parts.push_back(full_with_layout(meta.global_shape, 0, meta.dtype, meta.layout.without_partial()));
  }
  return {math::place_gradient(cat(parts, context.attributes<SplitAttrs>().dim), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void split_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<SplitAttrs>();
  int64_t start = 0;
  for (size_t i = 0; i < context.num_outputs(); ++i) {
    const int64_t end = start + attributes.sizes[i];
    set_output(context, i, at::native::slice(input(context, 0), attributes.dim, start, end));
    start = end;
  }
}
#endif

std::vector<Sample> split_samples() {
  return {{.name = "sizes",
           .inputs = {{{5, 6}}},
           .call =
               [](const std::vector<Tensor>& in) {
                 return split(in[0], std::vector<int64_t>{1, 3, 2}, 1);
               }},
          {.name = "by size, size 1", .inputs = {{{5, 1}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
             return split(in[0], 2);
           }}};
}
std::vector<Sample> chunk_samples() {
  return {
      {.name = "uneven", .inputs = {{{5, 3}}}, .call = [](const std::vector<Tensor>& in) { return chunk(in[0], 2); }},
      {.name = "fewer than asked", .inputs = {{{5, 1}, kFloat64}}, .call = [](const std::vector<Tensor>& in) {
         return chunk(in[0], 4, 0);
       }}};
}

std::vector<int64_t> equal_sizes(int64_t total, int64_t size) {
  std::vector<int64_t> sizes;
  for (int64_t start = 0; start < total; start += size) sizes.push_back(std::min(size, total - start));
  if (sizes.empty()) sizes.push_back(0);
  return sizes;
}

}  // namespace

constinit OperatorDef split_op = {
    .name = "split",
    .signature = "split(x, sizes, dim) -> [Tensor]",
    .attributes = attribute_codec<SplitAttrs>(),
    .infer = split_infer,
    .rule = split_rule,
    .kernel = DTORCH_KERNEL(split_kernel),
    .gradient = split_gradient,
    .samples = split_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef chunk_op = {
    .name = "chunk",
    .signature = "chunk(x, chunks, dim) -> [Tensor]",
    .attributes = attribute_codec<SplitAttrs>(),
    .infer = split_infer,
    .rule = split_rule,
    .kernel = DTORCH_KERNEL(split_kernel),
    .gradient = split_gradient,
    .samples = chunk_samples,
    .linear_in = "x",
    .saved_inputs = 0,
};

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "split", where);
  int64_t total = 0;
  bool legal = !sizes.empty();
  for (int64_t size : sizes) {
    legal = legal && size >= 0;
    total += size;
  }
  if (!legal || total != x.shape()[d]) {
    throw at_line(
        ShapeError("[split] sizes must not be negative and add up to " + std::to_string(x.shape()[d]) + ", dim " +
                   std::to_string(d) + " of " + x.shape().str() + "; they add up to " + std::to_string(total)),
        where);
  }
  return record_list(split_op, SplitAttrs{d, sizes}, {x}, sizes.size(), where);
}
std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "split", where);
  if (split_size <= 0)
    throw at_line(UserError("[split] split_size is " + std::to_string(split_size) + ", must be positive"), where);
  return split(x, equal_sizes(x.shape()[d], split_size), d, where);
}
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim, Where where) {
  const int64_t d = normalize_dim(dim, x.ndim(), "chunk", where);
  if (chunks <= 0)
    throw at_line(UserError("[chunk] chunks is " + std::to_string(chunks) + ", must be positive"), where);
  const int64_t size = (x.shape()[d] + chunks - 1) / chunks;
  const std::vector<int64_t> sizes = equal_sizes(x.shape()[d], std::max<int64_t>(1, size));
  return record_list(chunk_op, SplitAttrs{d, sizes}, {x}, sizes.size(), where);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim, Where where) const {
  return dtorch::chunk(*this, chunks, dim, where);
}

}  // namespace dtorch
