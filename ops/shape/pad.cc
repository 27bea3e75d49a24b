// pad(x, pad, mode, value): pad = {left, right} of the last dim, then of the one before, ...; negative numbers cut.
// Mode "constant" writes `value`; "reflect", "replicate" and "circular" take elements of x (pad_from). Layouts: dims
// that aren't padded keep their shards; Partial passes, Partial(sum) with value 0 only; along a sharded dim x is
// gathered, and the result sharded as x was. scalars: the value. Gradients: g without the padding; g added up where the
// elements came from (pad_from_gradient).
#include <algorithm>

#include "ops/math/operators.h"
#include "ops/shape/composed.h"
#include "ops/shape/rearrange.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/constant_pad_nd_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_add_cpu_dispatch.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/index_select_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {

extern OperatorDef pad_op, pad_from_op, pad_from_gradient_op;

namespace {

using namespace shaping;

enum Mode : int64_t { kConstant, kReflect, kReplicate, kCircular };

struct PadAttrs {
  std::vector<int64_t> pad;  // {before, after} of every dim, first to last
  int64_t mode = kConstant;
  bool value_is_floating = false, value_is_zero = true;
  template <class V>
  void fields(V& v) {
    v("pad", pad);
    v("mode", mode);
    v("value_is_floating", value_is_floating);
    v("value_is_zero", value_is_zero);
  }
  int64_t before(int64_t d) const { return pad[static_cast<size_t>(2 * d)]; }
  int64_t after(int64_t d) const { return pad[static_cast<size_t>(2 * d + 1)]; }
  std::vector<int64_t> padded_dims() const {
    std::vector<int64_t> dims;
    for (int64_t d = 0; 2 * d < std::ssize(pad); ++d) {
      if (before(d) != 0 || after(d) != 0) dims.push_back(d);
    }
    return dims;
  }
};

Shape padded(Shape shape, const PadAttrs& attributes, int sign) {
  for (int64_t d = 0; d < shape.ndim(); ++d) shape[d] += sign * (attributes.before(d) + attributes.after(d));
  return shape;
}
std::vector<OutputMeta> infer(const InferContext& context) {
  return {{padded(context.shape(0), context.attributes<PadAttrs>(), 1), context.dtype(0)}};
}
std::vector<OutputMeta> gradient_infer(const InferContext& context) {
  return {{padded(context.shape(0), context.attributes<PadAttrs>(), -1), context.dtype(0)}};
}

Rule rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<PadAttrs>();
  Rule rule = keeping_rule(context.shape(0).ndim(), attributes.padded_dims());
  if (!attributes.value_is_zero) {
    std::erase_if(rule.rows, [](const Row& row) { return row.inputs[0].is_partial(kSum); });
  }
  return rule;
}
Rule gradient_rule(const InferContext& context, std::span<const OutputMeta>) {
  return without_extremes(keeping_rule(context.shape(0).ndim(), context.attributes<PadAttrs>().padded_dims()));
}

std::vector<Tensor> gradient(const GradientContext& context) {
  std::vector<int64_t> cut;  // as pad() takes it: last dim first
  const auto& attributes = context.attributes<PadAttrs>();
  for (int64_t d = context.input_meta(0).global_shape.ndim() - 1; d >= 0; --d) {
    cut.push_back(-attributes.before(d));
    cut.push_back(-attributes.after(d));
  }
  return {math::place_gradient(pad(context.grad_output(0), cut), context.input_meta(0))};
}
std::vector<Tensor> pad_from_gradient(const GradientContext& context) {
  const Where where = Where::current();
  const auto& attributes = context.attributes<PadAttrs>();
  const Tensor g = gather_dims("pad", context.grad_output(0), attributes.padded_dims(), where);
  return {math::place_gradient(record(pad_from_gradient_op, attributes, {&g}, where), context.input_meta(0))};
}

#if DTORCH_WITH_KERNELS
void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<PadAttrs>();
  const Scalar& value = context.scalar(0);
  std::vector<int64_t> last_first;
  for (int64_t d = input(context, 0).dim() - 1; d >= 0; --d) {
    last_first.push_back(attributes.before(d));
    last_first.push_back(attributes.after(d));
  }
  set_output(context, 0,
             at::native::constant_pad_nd(
                 input(context, 0), last_first,
                 attributes.value_is_floating ? at::Scalar(value.as_double()) : at::Scalar(value.as_int())));
}

// Positions in a dim of `size` elements that the padded dim's elements come from.
at::Tensor sources(const PadAttrs& attributes, int64_t d, const at::Tensor& like) {
  const int64_t size = like.size(d);
  const int64_t count = size + attributes.before(d) + attributes.after(d);
  at::Tensor index = at::empty({count}, at::TensorOptions().dtype(at::kLong));
  auto* to = index.mutable_data_ptr<int64_t>();
  for (int64_t j = 0; j < count; ++j) {
    int64_t i = j - attributes.before(d);
    if (attributes.mode == kReflect) {
      if (i < 0) i = -i;
      if (i >= size) i = 2 * (size - 1) - i;
    } else if (attributes.mode == kReplicate) {
      i = std::clamp<int64_t>(i, 0, size - 1);
    } else {
      // What is left of x after the cuts goes round.
      const int64_t cut = std::max<int64_t>(0, -attributes.before(d));
      const int64_t period = size - cut - std::max<int64_t>(0, -attributes.after(d));
      i = ((i - cut) % period + period) % period + cut;
    }
    to[j] = i;
  }
  return like.is_cpu() ? index : index.to(like.device());
}
void pad_from_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<PadAttrs>();
  at::Tensor x = input(context, 0);
  for (int64_t d : attributes.padded_dims()) x = DTORCH_ATEN(index_select)(x, d, sources(attributes, d, x));
  set_output(context, 0, x);
}
void pad_from_gradient_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<PadAttrs>();
  at::Tensor g = input(context, 0);
  for (int64_t d : attributes.padded_dims()) {
    std::vector<int64_t> sizes = g.sizes().vec();
    sizes[static_cast<size_t>(d)] = output_sizes(context, 0)[static_cast<size_t>(d)];
    const at::Tensor none = at::zeros(sizes, g.options());
    g = DTORCH_ATEN(index_add)(none, d, sources(attributes, d, none), g);
  }
  set_output(context, 0, g);
}
#endif

std::vector<Sample> samples() {
  return {{.name = "one dim, uneven", .inputs = {{{3, 5}}}, .call = single([](const auto& in) {
                                                              return pad(in[0], {1, 2});
                                                            })},
          {.name = "cuts and a value, size 1",
           .inputs = {{{5, 1, 3}, kFloat64}},
           .call = single([](const auto& in) {
             return pad(in[0], {2, -1, 0, 0, 1, 0}, "constant", 1.5);
           })},
          {.name = "empty, integers",
           .inputs = {{{0, 3}, kInt64, SampleFill::kIota, 0, false}},
           .call = single([](const auto& in) {
             return pad(in[0], {1, 0, 2, 0}, "constant", 7);
           })}};
}
std::vector<Sample> pad_from_samples() {
  return {{.name = "reflect, uneven", .inputs = {{{2, 5}}}, .call = single([](const auto& in) {
                                                              return pad(in[0], {2, 1}, "reflect");
                                                            })},
          {.name = "replicate, two dims, size 1",
           .inputs = {{{2, 1, 5}, kFloat64}},
           .call = single([](const auto& in) {
             return pad(in[0], {1, 2, 2, 1}, "replicate");
           })},
          {.name = "circular", .inputs = {{{3, 5}, kFloat64}}, .call = single([](const auto& in) {
                                                                 return pad(in[0], {3, 5}, "circular");
                                                               })}};
}

Mode mode_of(const std::string& name, const Where& where) {
  if (name == "constant") return kConstant;
  if (name == "reflect") return kReflect;
  if (name == "replicate") return kReplicate;
  if (name == "circular") return kCircular;
  throw at_line(
      UserError("[pad] mode is '" + name + "', allowed are 'constant', 'reflect', 'replicate' and 'circular'"), where);
}

// What each mode can take from a dim of `size` elements.
bool fits(Mode mode, int64_t size, int64_t before, int64_t after) {
  if (size + before + after < 0) return false;
  const int64_t most = std::max(before, after);
  switch (mode) {
    case kReflect:
      return most < std::max<int64_t>(size, 1);
    case kReplicate:
      return size > 0 || most <= 0;
    case kCircular:
      return most <= size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    default:
      return true;
  }
}

}  // namespace

constinit OperatorDef pad_op = {
    .name = "pad",
    .signature = "pad(x, pad, mode, value) -> Tensor",
    .attributes = attribute_codec<PadAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(kernel),
    .gradient = gradient,
    .samples = samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x, with value 0",
    .saved_inputs = 0,
};
constinit OperatorDef pad_from_op = {
    .name = "pad_from",
    .signature = "pad(x, pad, mode other than constant) -> Tensor",
    .attributes = attribute_codec<PadAttrs>(),
    .infer = infer,
    .rule = rule,
    .kernel = DTORCH_KERNEL(pad_from_kernel),
    .gradient = pad_from_gradient,
    .samples = pad_from_samples,
    .placement_class = PlacementClass::kCombines,
    .linear_in = "x",
    .saved_inputs = 0,
};
constinit OperatorDef pad_from_gradient_op = {
    .name = "pad_from_gradient",
    .signature = "pad_from_gradient(g, pad, mode) -> Tensor",
    .attributes = attribute_codec<PadAttrs>(),
    .infer = gradient_infer,
    .rule = gradient_rule,
    .kernel = DTORCH_KERNEL(pad_from_gradient_kernel),
    .linear_in = "g",
    .saved_inputs = 0,
};

Tensor pad(const Tensor& x, const std::vector<int64_t>& pad, const std::string& mode, Number value, Where where) {
  const Mode kind = mode_of(mode, where);
  const auto ndim = static_cast<size_t>(x.ndim());
  bool legal = pad.size() % 2 == 0 && pad.size() <= 2 * ndim;
  PadAttrs attributes{std::vector<int64_t>(2 * ndim, 0), kind, value.is_floating, value.floating == 0};
  for (size_t i = 0; legal && i < pad.size(); i += 2) {
    const size_t d = ndim - 1 - i / 2;
    attributes.pad[2 * d] = pad[i];
    attributes.pad[2 * d + 1] = pad[i + 1];
    legal = fits(kind, x.shape()[static_cast<int64_t>(d)], pad[i], pad[i + 1]);
  }
  if (!legal) {
    throw at_line(ShapeError("[pad] " + x.shape().str() + " can't be padded by " + Shape(pad.begin(), pad.end()).str() +
                             " with mode '" + mode +
                             "': two numbers a dim, last dim first; reflect takes less than a "
                             "dim's size, circular at most its size, replicate needs an element"),
                  where);
  }
  const std::vector<int64_t> dims = attributes.padded_dims();
  if (dims.empty()) return x;
  const Tensor gathered = gather_dims("pad", x, dims, where);
  if (kind != kConstant) {
    attributes.value_is_floating = false;
    attributes.value_is_zero = true;
    return shard_as(x, record(pad_from_op, attributes, {&gathered}, where), where);
  }
  const Scalar scalar = value.scalar();
  return shard_as(x, record(pad_op, attributes, {&gathered}, where, {.scalars = {&scalar, 1}}), where);
}

}  // namespace dtorch
