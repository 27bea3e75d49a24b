// A program with an operator of its own: bias_square_relu(x, bias) = relu(x + bias)^2 in one kernel.
//   x [..., N], bias [N], one floating dtype. Layouts: same on every dim; nothing pending, as it isn't linear.
//   Gradient: dz = 2 g relu(x + bias), an operator too; it is dx, and summed over the leading dims dbias.
//
//   build/bin/own_operator --devices 4           # uses it
//   build/bin/own_operator check                 # runs the checker on it; also under mpirun -np 3
#include <dtorch/checker.h>
#include <dtorch/dtorch.h>
#include <dtorch/kernel.h>

#include <iostream>
#include <string>
using namespace dtorch;

namespace {

extern OperatorDef bias_square_relu_op, bias_square_relu_gradient_op;

Tensor bias_square_relu(const Tensor& x, const Tensor& bias, Where where = Where::current()) {
  return record(bias_square_relu_op, NoAttrs{}, {&x, &bias}, where);
}

// Metadata: shapes and dtypes of the results, from those of the inputs.
std::vector<OutputMeta> infer(const InferContext& context) {
  const Shape &x = context.shape(0), &bias = context.shape(1);
  if (x.ndim() == 0 || bias.ndim() != 1 || bias[0] != x[x.ndim() - 1]) {
    throw ShapeError("[bias_square_relu] bias is " + bias.str() + ", must be [N] for x [..., N], which is " + x.str());
  }
  if (!is_floating(context.dtype(0)) || context.dtype(0) != context.dtype(1)) {
    throw DTypeError("[bias_square_relu] x is " + std::string(name_of(context.dtype(0))) + " and bias " +
                     name_of(context.dtype(1)) + ", must be the same floating dtype");
  }
  return {{x, context.dtype(0)}};
}
std::vector<OutputMeta> infer_gradient(const InferContext& context) {
  return {{context.shape(1), context.dtype(1)}};  // g, x, bias
}

// Rows for one mesh axis: what a device may compute from its parts alone.
Rule rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0), context.shape(1)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kNo);
}
Rule gradient_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  const Shape shapes[] = {context.shape(0), context.shape(1), context.shape(2)};
  return elementwise_rule(shapes, outputs[0].global_shape, Linear::kInFirst);  // a pending g stays pending
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  set_output(context, 0, input(context, 0).add(input(context, 1)).clamp_min(0).square());
}
void gradient_kernel(KernelContext& context) {
  const at::Tensor y = input(context, 1).add(input(context, 2)).clamp_min(0);
  set_output(context, 0, y.mul(input(context, 0)).mul(2));
}
#endif

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor x = context.input(0), bias = context.input(1);
  const Tensor dz =
      record(bias_square_relu_gradient_op, NoAttrs{}, {&context.grad_output(0), &x, &bias}, Where::current());
  std::vector<int64_t> leading;
  for (int64_t d = 0; d + 1 < x.ndim(); ++d) leading.push_back(d);
  // The parts of dbias stay pending until somebody reads the gradient.
  return {dz, leading.empty() ? dz : sum_pending(dz, leading)};
}

std::vector<Sample> samples() {
  const auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{bias_square_relu(in[0], in[1])}; };
  return {{.name = "uneven", .inputs = {{{5, 3}}, {{3}}}, .call = call},
          {.name = "size 1, float64", .inputs = {{{2, 1, 4}, kFloat64}, {{4}, kFloat64}}, .call = call},
          {.name = "empty", .inputs = {{{0, 2}}, {{2}}}, .call = call}};
}

constinit OperatorDef bias_square_relu_op = {
    .name = "bias_square_relu",
    .signature = "bias_square_relu(x, bias) -> Tensor",
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
};
constinit OperatorDef bias_square_relu_gradient_op = {
    .name = "bias_square_relu_gradient",
    .signature = "bias_square_relu_gradient(g, x, bias) -> Tensor",
    .infer = infer_gradient,
    .rule = gradient_rule,
    .kernel = DTORCH_KERNEL(gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "check") {
    return check_operators(argc - 1, argv + 1, {&bias_square_relu_op, &bias_square_relu_gradient_op});
  }
  // Before dtorch::run, so on every rank: the nodes compare their lists of operators when the job starts.
  OperatorRegistry::global().add(bias_square_relu_op);
  OperatorRegistry::global().add(bias_square_relu_gradient_op);
  return dtorch::run(argc, argv, [](Client& client) {
    DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()}, {"dp"});
    Tensor x = randn({256, 64}, {.mesh = mesh, .placements = {Shard(0)}});
    Tensor bias = randn({64}, {.mesh = mesh, .requires_grad = true});
    Tensor y = bias_square_relu(x, bias);
    y.mean().backward();
    const Tensor composed = (x + bias).relu();
    const float difference = (y - composed * composed).abs().max().item<float>();
    std::cout << y.placements() << ", differs from its parts by at most " << difference << "; bias.grad is "
              << bias.grad().placements() << '\n';
  });
}
