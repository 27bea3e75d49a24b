// masked_scatter(x, mask, source): where mask is true, the elements of source in order. Layouts: x keeps its own; every
// device needs mask and source whole, since a position's number among the true ones counts over the whole mask. Linear
// in x and source together. Gradients: x: g, 0 where masked; source: masked elements of g, then zeros
// (masked_scatter_grad, linear in g, Partial where g is sharded).
#include "ops/create/aten_call.h"
#include "ops/create/checked_index.h"
#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/math/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/where.h>
#include <ATen/ops/where_cpu_dispatch.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {
namespace {

using namespace indexing;

struct SourceAttrs {
  Shape shape;  // of source
  template <class V>
  void fields(V& v) {
    v("shape", shape);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) { return {{context.shape(0), context.dtype(0)}}; }
std::vector<OutputMeta> grad_infer(const InferContext& context) {
  return {{context.attributes<SourceAttrs>().shape, context.dtype(0)}};
}

// No dim of source lies along one of x or mask.
Dims dims_of(const Shape& x, const Shape& source) {
  const std::vector<int64_t> none(static_cast<size_t>(source.ndim()), -1);
  return {x.ndim(), x.ndim(), 1, none, none};
}
Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  return put_rule(dims_of(context.shape(0), context.shape(2)), Put::kAssign, context.inputs);
}
Rule grad_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule = pick_rule(dims_of(context.shape(0), outputs[0].global_shape));
  std::erase_if(rule.rows,
                [](const Row& row) { return row.inputs[0].is_partial(kMax) || row.inputs[0].is_partial(kMin); });
  return rule;
}

std::vector<Tensor> gradient(const GradientContext& context) {
  const Tensor& g = context.grad_output(0);
  const Tensor mask = context.input(1);
  std::vector<Tensor> gradients(3);
  if (context.needs_grad(0)) gradients[0] = math::place_gradient(masked_fill(g, mask, 0), context.input_meta(0));
  if (context.needs_grad(2)) {
    const TensorMeta& source = context.input_meta(2);
    gradients[2] = math::place_gradient(
        record(masked_scatter_grad_op, SourceAttrs{source.global_shape}, {&g, &mask}, Where::current()), source);
  }
  return gradients;
}

#if DTORCH_WITH_KERNELS
struct LocalMask {
  at::Tensor mask;
  at::Tensor numbers;  // of the position among all true ones, where mask is true
  at::Tensor count;    // of all true ones: [1], or [0] of an empty mask
};
// Of a whole mask, the part in `box`.
LocalMask local_mask(const at::Tensor& whole, const Box& box) {
  const at::Tensor counts = whole.reshape({-1}).cumsum(0, at::kLong);
  LocalMask local{whole, counts.sub(1).view(whole.sizes()),
                  counts.narrow(0, std::max<int64_t>(0, counts.numel() - 1), std::min<int64_t>(1, counts.numel()))};
  for (int64_t d = 0; d < box.ndim(); ++d) {
    local.mask = local.mask.narrow(d, box.offset[d], box.size[d]);
    local.numbers = local.numbers.narrow(d, box.offset[d], box.size[d]);
  }
  return local;
}

void kernel(KernelContext& context) {
  const at::Tensor &x = input(context, 0), &source = input(context, 2);
  const LocalMask local = local_mask(input(context, 1), context.input_box(0));
  const bool on_cpu = local.count.is_cpu();
  const int64_t num_true = on_cpu && local.count.numel() > 0 ? *local.count.const_data_ptr<int64_t>() : 0;
  if (num_true > source.numel()) {
    throw RuntimeFault("the mask has " + std::to_string(num_true) + " true elements, source " +
                       std::to_string(source.numel()));
  }
  if (!on_cpu)
    checked_on_device(local.count, 0, source.numel() + 1, "the mask's number of true elements,", {},
                      ": source has too few");
  if (on_cpu ? num_true == 0 : source.numel() == 0) {
    set_output(context, 0, x.clone(at::MemoryFormat::Contiguous));
    return;
  }
  const at::Tensor values = source.reshape({-1}).take(local.numbers.clamp(0, source.numel() - 1));
  set_output(context, 0, DTORCH_ATEN(where)(local.mask, values, x));
}
void grad_kernel(KernelContext& context) {
  const at::Tensor& g = input(context, 0);
  const LocalMask local = local_mask(input(context, 1), context.input_box(0));
  at::Tensor out = at::zeros(output_sizes(context, 0), g.options());
  if (!g.is_cpu()) {
    // One place more takes what isn't masked: how many are would have to be read.
    const int64_t count = out.numel();
    const at::Tensor places = at::where(local.mask, local.numbers.clamp_max(count), count);
    at::Tensor wider = at::zeros({count + 1}, g.options());
    wider.scatter_(0, places.reshape({-1}), g.reshape({-1}));
    set_output(context, 0, wider.narrow(0, 0, count).view(out.sizes()));
    return;
  }
  out.view({-1}).index_copy_(0, local.numbers.masked_select(local.mask), g.masked_select(local.mask));
  set_output(context, 0, std::move(out));
}
#endif

std::vector<Sample> samples() {
  const auto call = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{masked_scatter(in[0], in[1], in[2])};
  };
  return {{.name = "uneven", .inputs = {{{5, 3}}, {{5, 3}, kBool, SampleFill::kBool}, {{15}}}, .call = call},
          {.name = "broadcast, size 1",
           .inputs = {{{4, 1, 2}, kFloat64}, {{4, 1, 1}, kBool, SampleFill::kBool}, {{3, 4}, kFloat64}},
           .call = call},
          {.name = "empty, integers",
           .inputs = {{{0, 3}, kInt64, SampleFill::kIota, 0, false},
                      {{3}, kBool, SampleFill::kBool},
                      {{2}, kInt64, SampleFill::kIota, 0, false}},
           .call = call}};
}

}  // namespace

constinit OperatorDef masked_scatter_op = {.name = "masked_scatter",
                                           .signature = "masked_scatter(x, mask, source) -> Tensor",
                                           .infer = infer,
                                           .rule = rule,
                                           .kernel = DTORCH_KERNEL(kernel),
                                           .gradient = gradient,
                                           .samples = samples,
                                           .placement_class = PlacementClass::kCombines,
                                           .linear_in = "x and source together",
                                           .saved_inputs = 2};
constinit OperatorDef masked_scatter_grad_op = {.name = "masked_scatter_grad",
                                                .signature = "masked_scatter_grad(g, mask, shape) -> Tensor",
                                                .attributes = attribute_codec<SourceAttrs>(),
                                                .infer = grad_infer,
                                                .rule = grad_rule,
                                                .kernel = DTORCH_KERNEL(grad_kernel),
                                                .linear_in = "g"};

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, Where where) {
  SourceScope scope(where);
  need_same_dtype("masked_scatter", x, source, where);
  if (mask.dtype() != kBool) {
    throw at_line(DTypeError(std::string("[masked_scatter] the mask is ") + name_of(mask.dtype()) + ", must be bool"),
                  where);
  }
  const Tensor whole = broadcast_to("masked_scatter", mask, x.shape(), where);
  const Placed placed =
      place_put("masked_scatter", x, {whole}, source, dims_of(x.shape(), source.shape()), Put::kAssign, where);
  return record(masked_scatter_op, NoAttrs{}, {&placed.inputs[0], &placed.inputs[1], &placed.inputs[2]}, where);
}

}  // namespace dtorch
