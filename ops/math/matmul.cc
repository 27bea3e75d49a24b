// matmul(a, b) as torch.matmul: a [..., M, K] x b [..., K, N] -> [..., M, N] with broadcast batch dims; a [K] has no M,
// b [K] no N. Layouts, by letters: sharding a batch dim, M or N shards the result, sharding K gives Partial(sum);
// linear in each operand. Gradients: g b^T and a^T g, summed over broadcast batch dims; with b [K, N] the second is
// contract_leading(a, g).
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/products.h"
#include "ops/math/structured.h"
#include "ops/shape/functions.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/matmul_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mm_native.h>
#endif

namespace dtorch {
namespace {

using namespace math;

// Splits a shape into batch dims and matrix; 1-D operands have one matrix dim.
int64_t batch_ndim(const Shape& shape) { return std::max<int64_t>(0, shape.ndim() - 2); }
Shape batch_of(const Shape& shape) { return Shape(shape.begin(), shape.begin() + batch_ndim(shape)); }

std::vector<OutputMeta> matmul_infer(const InferContext& context) {
  const Shape &a = context.shape(0), &b = context.shape(1);
  if (a.ndim() == 0 || b.ndim() == 0) {
    throw ShapeError("[matmul] operands must have at least 1 dim, got " + a.str() + " and " + b.str());
  }
  const int64_t k = a.back(), k_of_b = b[b.ndim() == 1 ? 0 : b.ndim() - 2];
  if (k != k_of_b) {
    throw ShapeError("[matmul] " + a.str() + " x " + b.str() + ": the last dim of a is " + std::to_string(k) +
                     ", that of b to multiply is " + std::to_string(k_of_b));
  }
  refuse_mixed_dtypes(context);
  Shape shape = broadcast_shapes(batch_of(a), batch_of(b), context.op);
  if (a.ndim() > 1) shape.push_back(a[a.ndim() - 2]);
  if (b.ndim() > 1) shape.push_back(b.back());
  return {{shape, context.dtype(0)}};
}

// Letters: batch dim i counted from the right is 4 + i; M, K, N are 1, 2, 3. A batch dim that is broadcast has no
// letter.
Letters matmul_letters(const Shape& shape, const Shape& batch, bool is_a) {
  Letters letters;
  const int64_t own_batch = batch_ndim(shape);
  for (int64_t d = 0; d < own_batch; ++d) {
    const int64_t from_right = own_batch - 1 - d;
    const bool broadcast = shape[d] != batch[batch.ndim() - 1 - from_right];
    letters.push_back(broadcast ? kNoLetter : static_cast<int16_t>(4 + from_right));
  }
  if (is_a && shape.ndim() > 1) letters.push_back(1);
  letters.push_back(2);
  if (!is_a && shape.ndim() > 1) letters.push_back(3);
  return letters;
}

Rule matmul_rule(const InferContext& context, std::span<const OutputMeta>) {
  const Shape &a = context.shape(0), &b = context.shape(1);
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), context.op);
  Letters out;
  for (int64_t d = 0; d < batch.ndim(); ++d) out.push_back(static_cast<int16_t>(4 + batch.ndim() - 1 - d));
  if (a.ndim() > 1) out.push_back(1);
  if (b.ndim() > 1) out.push_back(3);
  Rule rule = letters_rule({matmul_letters(a, batch, true), matmul_letters(b, batch, false)}, out);
  add_multilinear_rows(2, &rule);
  return rule;
}

std::vector<Tensor> matmul_gradient(const GradientContext& context) {
  const TensorMeta &a_meta = context.input_meta(0), &b_meta = context.input_meta(1);
  const bool a_is_vector = a_meta.global_shape.ndim() == 1, b_is_vector = b_meta.global_shape.ndim() == 1;
  Tensor g = context.grad_output(0);
  if (b_is_vector) g = unsqueeze(g, -1);
  if (a_is_vector) g = unsqueeze(g, -2);
  std::vector<Tensor> gradients(2);
  if (context.needs_grad(0)) {
    const Tensor b = b_is_vector ? unsqueeze(context.input(1), -1) : context.input(1);
    Tensor gradient = matmul(g, transpose(b, -1, -2));
    if (!a_is_vector) {
      gradients[0] = fit_gradient(gradient, a_meta);
    } else {
      gradients[0] = fit_gradient(squeeze(gradient, -2), a_meta);
    }
  }
  if (context.needs_grad(1)) {
    const Tensor a = a_is_vector ? unsqueeze(context.input(0), 0) : context.input(0);
    if (b_is_vector) {
      gradients[1] = squeeze(contract_leading(a, g), -1);
    } else if (b_meta.global_shape.ndim() == 2) {
      gradients[1] = contract_leading(a, g);
    } else {
      gradients[1] = fit_gradient(matmul(transpose(a, -1, -2), g), b_meta);
    }
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
void matmul_kernel(KernelContext& context) {
  const at::Tensor &a = input(context, 0), &b = input(context, 1);
  set_output(context, 0, a.dim() == 2 && b.dim() == 2 ? DTORCH_ATEN(mm)(a, b) : at::native::matmul(a, b));
}

// Of two matrices: neither checks nor an allocation.
class MatrixProduct final : public PreparedKernel {
 public:
  bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output, std::span<const Scalar>) override {
    product_.impl(as_aten(*inputs[0]), as_aten(*inputs[1]), as_aten(output));
    return true;
  }

 private:
  WithoutMeta<at::native::structured_mm_out_cpu> product_;
};
std::unique_ptr<PreparedKernel> prepare_matmul(const LocalOperator& local) {
  const Shape &a = local.input_boxes[0].size, &b = local.input_boxes[1].size;
  if (a.ndim() != 2 || b.ndim() != 2 || a.num_elements() == 0 || b.num_elements() == 0) return nullptr;
  return std::make_unique<MatrixProduct>();
}
#endif

std::vector<Sample> matmul_samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{matmul(in[0], in[1])}; };
  return {{.name = "matrices", .inputs = {normal({5, 7}), normal({7, 3})}, .call = call},
          {.name = "batched, broadcast",
           .inputs = {normal({2, 1, 3, 5}, kFloat64), normal({4, 5, 2}, kFloat64)},
           .call = call},
          {.name = "batch x matrix", .inputs = {normal({3, 5, 7}, kFloat64), normal({7, 2}, kFloat64)}, .call = call},
          {.name = "vectors", .inputs = {normal({5}), normal({5})}, .call = call},
          {.name = "matrix x vector, size 1", .inputs = {normal({1, 5}), normal({5})}, .call = call},
          {.name = "vector x batch", .inputs = {normal({5}), normal({3, 5, 2})}, .call = call},
          {.name = "K is 0", .inputs = {normal({3, 0}), normal({0, 2})}, .call = call}};
}

}  // namespace

constinit OperatorDef matmul_op = {
    .name = "matmul",
    .signature = "matmul(a, b) -> Tensor",
    .infer = matmul_infer,
    .rule = matmul_rule,
    .kernel = DTORCH_KERNEL(matmul_kernel),
    .prepare = DTORCH_KERNEL(prepare_matmul),
    .gradient = matmul_gradient,
    .samples = matmul_samples,
    .linear_in = "each",
};

Tensor matmul(const Tensor& a, const Tensor& b, Where where) { return record(matmul_op, NoAttrs{}, {&a, &b}, where); }
Tensor Tensor::matmul(const Tensor& other, Where where) const { return dtorch::matmul(*this, other, where); }

}  // namespace dtorch
