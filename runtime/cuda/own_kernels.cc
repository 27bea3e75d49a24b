// Kernels of our own: one value everywhere, random values and dropout (kernel_source/random_source.h), AdamW
// (kernel_source/step_source.h).
#include <cmath>

#include "dtorch/kernel.h"
#include "mesh/device_mesh.h"
#include "ops/create/full_attrs.h"
#include "ops/nn/dropout_attrs.h"
#include "ops/nn/list_attrs.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/kernel_source/prelude.h"
#include "runtime/kernel_source/random_source.h"
#include "runtime/kernel_source/step_source.h"

namespace dtorch::cuda {
namespace {

using namespace kernel_source;

// As create::holds_value: positions but the first of a pending sum hold zeros.
bool holds_value(const KernelContext& context) {
  const Layout& layout = context.output_meta(0).layout;
  if (!layout.has_partial()) return true;
  const DeviceMesh& mesh = layout.mesh();
  const Shape coordinate = mesh.coordinate_of_index(mesh.index_of(context.device()));
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    if (layout.placement(axis).is_partial(kSum) && coordinate[axis] != 0) return false;
  }
  return true;
}

constexpr int64_t kElementsPerThread = 4;

// more: addresses of what the kernel takes behind seed and call.
void fill(KernelContext& context, RandomKind kind, const std::vector<void*>& more) {
  CudaStream& stream = CudaStream::current();
  const DType dtype = context.output_meta(0).dtype;
  NativeTensor part = stream.allocate(context.output_box(0).size, dtype, nullptr);
  if (!holds_value(context)) {
    stream.set_zero(part);
  } else {
    const RandomSource source = random_source(kind, dtype);
    PartParameter where = part_parameter(context.output_meta(0).global_shape, context.output_box(0));
    std::byte* to = part.data();
    uint64_t seed = context.scalar(0).bits, call = context.scalar(1).bits;
    std::vector<void*> arguments = {&to, &where, &seed, &call};
    arguments.insert(arguments.end(), more.begin(), more.end());
    stream.run_compiled(
        source.name, source.name, [&] { return prelude() + random_prelude() + source.text; },
        (part.num_elements() + kElementsPerThread - 1) / kElementsPerThread, arguments);
  }
  context.output(0) = std::move(part);
}

// The memory of a donated input, or new memory.
NativeTensor target_of(KernelContext& context, size_t i, CudaStream& stream) {
  if (context.may_reuse(i) && context.input(i).is_contiguous()) return context.input(i);
  return stream.allocate(context.input(i).local_shape(), context.input(i).dtype(), nullptr);
}

}  // namespace

void full_kernel(KernelContext& context) {
  CudaStream& stream = CudaStream::current();
  NativeTensor part = stream.allocate(context.output_box(0).size, context.output_meta(0).dtype, nullptr);
  const Scalar& value = context.scalar(0);
  const bool floating = context.attributes<create::FullAttrs>().floating;
  const at::Scalar item = floating ? at::Scalar(value.as_double()) : at::Scalar(value.as_int());
  if (holds_value(context)) {
    as_aten(part).fill_(item);
  } else {
    stream.set_zero(part);
  }
  context.output(0) = std::move(part);
}

void rand_kernel(KernelContext& context) { fill(context, RandomKind::kUniform, {}); }
void randn_kernel(KernelContext& context) { fill(context, RandomKind::kNormal, {}); }
void randint_kernel(KernelContext& context) {
  int64_t low = context.scalar(2).as_int();
  uint64_t range = static_cast<uint64_t>(context.scalar(3).as_int()) - static_cast<uint64_t>(low);
  fill(context, RandomKind::kInteger, {&low, &range});
}

void dropout_kernel(KernelContext& context) {
  CudaStream& stream = CudaStream::current();
  const double p = context.attributes<nn_ops::DropoutAttrs>().p;
  const DType dtype = context.output_meta(0).dtype;
  const RandomSource source = random_source(RandomKind::kDropout, dtype);
  const NativeTensor x = from_aten(input(context, 0).contiguous());
  NativeTensor result = stream.allocate(context.output_box(0).size, dtype, nullptr);
  PartParameter where = part_parameter(context.output_meta(0).global_shape, context.output_box(0));
  std::byte *to = result.data(), *from = x.data();
  uint64_t seed = context.scalar(0).bits, call = context.scalar(1).bits;
  auto limit = static_cast<uint64_t>((1 - p) * 4294967296.0);
  double scale = p < 1 ? 1 / (1 - p) : 0;
  stream.run_compiled(source.name, source.name, [&] { return prelude() + random_prelude() + source.text; },
                      (result.num_elements() + kElementsPerThread - 1) / kElementsPerThread,
                      {&to, &from, &where, &seed, &call, &limit, &scale});
  context.output(0) = std::move(result);
}

void adamw_kernel(KernelContext& context) {
  CudaStream& stream = CudaStream::current();
  const auto& attributes = context.attributes<nn_ops::ListAttrs>();
  const auto count = static_cast<size_t>(attributes.count);
  double lr = context.scalar(0).as_double();
  double beta1 = attributes.beta1, beta2 = attributes.beta2, eps = attributes.eps;
  double rest1 = 1 - beta1, rest2 = 1 - beta2, keep = 1 - lr * attributes.weight_decay;
  const auto step = static_cast<double>(context.scalar(1).as_int());
  double step_size = lr / (1 - std::pow(beta1, step)), root = std::sqrt(1 - std::pow(beta2, step));
  const std::byte* number = attributes.has_number ? context.input(context.num_inputs() - 1).data() : nullptr;
  if (!attributes.has_number && context.scalar(1).as_int() == 0) {
    for (size_t i = 0; i < count; ++i) {
      context.output(i) = context.input(i);
      context.output(count + i) = context.input(2 * count + i);
      context.output(2 * count + i) = context.input(3 * count + i);
    }
    return;
  }
  for (size_t first = 0, end = 0; first < count; first = end) {
    AdamwList list;
    std::vector<NativeTensor> held;  // copies that were made contiguous
    const DType dtype = context.input_meta(first).dtype;
    int64_t largest = 0;
    for (end = first; end < count && end - first < AdamwList::kMaxTensors && context.input_meta(end).dtype == dtype;
         ++end) {
      // Asked before there is another handle of the input.
      NativeTensor p = target_of(context, end, stream), m = target_of(context, 2 * count + end, stream),
                   v = target_of(context, 3 * count + end, stream);
      const auto source = [&](size_t i) { return held.emplace_back(from_aten(input(context, i).contiguous())).data(); };
      list.tensors[end - first] = {
          source(end), source(count + end), source(2 * count + end), source(3 * count + end), p.data(), m.data(),
          v.data(),    p.num_elements()};
      largest = std::max(largest, p.num_elements());
      context.output(end) = std::move(p);
      context.output(count + end) = std::move(m);
      context.output(2 * count + end) = std::move(v);
    }
    const StepSource source = adamw_source(dtype);
    stream.run_compiled(
        source.name, source.name, [&] { return prelude() + source.text; }, largest,
        {&list, &beta1, &rest1, &beta2, &rest2, &eps, &keep, &step_size, &root, &number, &lr},
        static_cast<unsigned>(end - first));
  }
}

}  // namespace dtorch::cuda
