// One operator a step for a list of tensors on one mesh: AdamW and SGD updates, the global sum of squares, scaling.
// Element by element, so every tensor keeps its own layout; layouts are given explicitly. Donated inputs are updated in
// place. Whether a step happens may be known on the devices only: a last input is its number, or 0.
#include <cmath>

#include "ops/nn/list_attrs.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"

#if DTORCH_WITH_KERNELS
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace nn_ops;

void check_lists(const InferContext& context, size_t kinds) {
  const auto count = static_cast<size_t>(context.attributes<ListAttrs>().count);
  DTORCH_CHECK(context.inputs.size() >= kinds * count, "operand lists");
  for (size_t i = 0; i < count; ++i) {
    need_floating(context, i);
    for (size_t kind = 1; kind < kinds; ++kind) {
      need_same_shape(context, i, kind * count + i);
      need_same_dtype(context, i, kind * count + i);
      if (context.inputs[i] == context.inputs[kind * count + i]) continue;
      throw UserError(std::string("[") + context.op + "] parameter " + std::to_string(i) + " is " +
                      context.inputs[i]->str() + ", its gradient or state is " +
                      context.inputs[kind * count + i]->str() + "; they must have one layout");
    }
  }
}

std::vector<OutputMeta> repeat_params(const InferContext& context, size_t times) {
  std::vector<OutputMeta> out;
  const auto count = static_cast<size_t>(context.attributes<ListAttrs>().count);
  for (size_t k = 0; k < times; ++k) {
    for (size_t i = 0; i < count; ++i) out.push_back({context.shape(i), context.dtype(i)});
  }
  return out;
}

std::vector<OutputMeta> adamw_infer(const InferContext& context) {
  check_lists(context, 4);
  return repeat_params(context, 3);
}
std::vector<OutputMeta> sgd_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ListAttrs>();
  check_lists(context, attributes.has_buffers ? 3 : 2);
  return repeat_params(context, attributes.momentum != 0 ? 2 : 1);
}
std::vector<OutputMeta> squares_infer(const InferContext& context) {
  DType dtype = kFloat32;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    need_floating(context, i);
    if (context.dtype(i) == kFloat64) dtype = kFloat64;
  }
  return {{Shape{}, dtype}};
}
std::vector<OutputMeta> scale_infer(const InferContext& context) { return repeat_params(context, 1); }

#if DTORCH_WITH_KERNELS
bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

// The tensor to write result `i` into: the donated input's memory or new memory, float32 for narrow types. Contiguous.
// Asked before there is another handle of that input.
at::Tensor target_of(KernelContext& context, size_t i) {
  const at::Tensor& from = input(context, i);
  if (!is_half(from) && context.may_reuse(i) && from.is_contiguous()) return from;
  const at::TensorOptions options = is_half(from) ? from.options().dtype(at::kFloat) : from.options();
  return at::empty_like(from, options, at::MemoryFormat::Contiguous);
}

// Calls f(T{}) with the arithmetic type of a tensor; half types are computed in float by the caller's conversion.
template <class F>
void with_arithmetic_type(const at::Tensor& tensor, F&& f) {
  if (tensor.scalar_type() == at::kDouble) {
    f(double{});
  } else {
    f(float{});
  }
}
at::Tensor readable(const at::Tensor& tensor) {
  return (is_half(tensor) ? tensor.to(at::kFloat) : tensor).contiguous();
}

// The last input, where there is a number.
int64_t number_of(const KernelContext& context) {
  const at::Tensor& number = input(context, context.num_inputs() - 1);
  return number.is_cpu() ? *number.const_data_ptr<int64_t>() : number.item<int64_t>();
}

void adamw_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ListAttrs>();
  const auto count = static_cast<size_t>(attributes.count);
  const double lr = context.scalar(0).as_double();
  const int64_t number = attributes.has_number ? number_of(context) : context.scalar(1).as_int();
  if (number == 0) {
    for (size_t i = 0; i < count; ++i) {
      context.output(i) = context.input(i);
      context.output(count + i) = context.input(2 * count + i);
      context.output(2 * count + i) = context.input(3 * count + i);
    }
    return;
  }
  const auto step = static_cast<double>(number);
  const double decay = 1 - lr * attributes.weight_decay;
  const double step_size = lr / (1 - std::pow(attributes.beta1, step));
  const double root_correction = std::sqrt(1 - std::pow(attributes.beta2, step));
  for (size_t i = 0; i < count; ++i) {
    at::Tensor p = target_of(context, i), m = target_of(context, 2 * count + i), v = target_of(context, 3 * count + i);
    at::Tensor p_in = readable(input(context, i)), g = readable(input(context, count + i));
    at::Tensor m_in = readable(input(context, 2 * count + i)), v_in = readable(input(context, 3 * count + i));
    with_arithmetic_type(p, [&]<class T>(T) {
      const T b1 = static_cast<T>(attributes.beta1), b2 = static_cast<T>(attributes.beta2),
              eps = static_cast<T>(attributes.eps);
      const T one_b1 = static_cast<T>(1 - attributes.beta1), one_b2 = static_cast<T>(1 - attributes.beta2);
      const T keep = static_cast<T>(decay), size = static_cast<T>(step_size), root = static_cast<T>(root_correction);
      const T *p0 = p_in.const_data_ptr<T>(), *g0 = g.const_data_ptr<T>(), *m0 = m_in.const_data_ptr<T>(),
              *v0 = v_in.const_data_ptr<T>();
      T *p1 = p.mutable_data_ptr<T>(), *m1 = m.mutable_data_ptr<T>(), *v1 = v.mutable_data_ptr<T>();
      for (int64_t k = 0, n = p.numel(); k < n; ++k) {
        const T mk = b1 * m0[k] + one_b1 * g0[k], vk = b2 * v0[k] + one_b2 * g0[k] * g0[k];
        m1[k] = mk;
        v1[k] = vk;
        p1[k] = p0[k] * keep - size * mk / (std::sqrt(vk) / root + eps);
      }
    });
    const at::ScalarType type = input(context, i).scalar_type();
    set_output(context, i, p.to(type));
    set_output(context, count + i, m.to(type));
    set_output(context, 2 * count + i, v.to(type));
  }
}

void sgd_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<ListAttrs>();
  const auto count = static_cast<size_t>(attributes.count);
  const double lr = context.scalar(0).as_double();
  const bool has_momentum = attributes.momentum != 0;
  if (attributes.has_number && number_of(context) == 0) {
    for (size_t i = 0; i < count; ++i) {
      context.output(i) = context.input(i);
      if (!has_momentum) continue;
      if (attributes.has_buffers)
        context.output(count + i) = context.input(2 * count + i);
      else
        set_output(context, count + i, at::zeros_like(input(context, i)));
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    at::Tensor p = target_of(context, i), b_in, b;
    if (has_momentum && attributes.has_buffers) b = target_of(context, 2 * count + i);
    at::Tensor p_in = readable(input(context, i)), g = readable(input(context, count + i));
    if (has_momentum) b_in = attributes.has_buffers ? readable(input(context, 2 * count + i)) : g;
    if (has_momentum && !attributes.has_buffers) b = at::empty_like(b_in);
    if (!p.is_cpu()) {
      at::Tensor d = g.add(p_in, attributes.weight_decay);
      if (has_momentum) {
        b = attributes.has_buffers ? b_in.mul(attributes.momentum).add_(d) : d.clone();
        d = attributes.nesterov ? d.add_(b, attributes.momentum) : b;
      }
      const at::ScalarType type = input(context, i).scalar_type();
      set_output(context, i, p_in.sub(d, lr).to(type));
      if (has_momentum) set_output(context, count + i, b.to(type));
      continue;
    }
    with_arithmetic_type(p, [&]<class T>(T) {
      const T rate = static_cast<T>(lr), decay = static_cast<T>(attributes.weight_decay),
              mu = static_cast<T>(attributes.momentum);
      const T *p0 = p_in.const_data_ptr<T>(), *g0 = g.const_data_ptr<T>();
      const T* b0 = has_momentum ? b_in.const_data_ptr<T>() : nullptr;
      T* p1 = p.mutable_data_ptr<T>();
      T* b1 = has_momentum ? b.mutable_data_ptr<T>() : nullptr;
      for (int64_t k = 0, n = p.numel(); k < n; ++k) {
        T d = g0[k] + decay * p0[k];
        if (has_momentum) {
          const T buffer = attributes.has_buffers ? mu * b0[k] + d : d;
          b1[k] = buffer;
          d = attributes.nesterov ? d + mu * buffer : buffer;
        }
        p1[k] = p0[k] - rate * d;
      }
    });
    const at::ScalarType type = input(context, i).scalar_type();
    set_output(context, i, p.to(type));
    if (has_momentum) set_output(context, count + i, b.to(type));
  }
}

// True on the one device of each group of equal holders that counts its part: position 0 of every axis that doesn't
// shard.
bool counts_part(const TensorMeta& meta, int64_t device) {
  const DeviceMesh& mesh = meta.layout.mesh();
  const Shape coordinate = mesh.coordinate_of_index(mesh.index_of(device));
  for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
    if (!meta.layout.placement(axis).is_shard() && coordinate[axis] != 0) return false;
  }
  return true;
}

// On other devices than the CPU; undefined where this device counts no part.
at::Tensor squares_on_device(const KernelContext& context) {
  at::Tensor total;
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    if (!counts_part(context.input_meta(i), context.device())) continue;
    const at::Tensor part = input(context, i).to(at::kDouble).square().sum();
    total = total.defined() ? total.add_(part) : part;
  }
  return total;
}

void squares_kernel(KernelContext& context) {
  if (context.num_inputs() > 0 && !input(context, 0).is_cpu()) {
    const at::Tensor sum = squares_on_device(context);
    const at::TensorOptions of_result = input(context, 0).options().dtype(scalar_type(context.output_meta(0).dtype));
    return set_output(context, 0, sum.defined() ? sum.to(of_result) : at::zeros({}, of_result));
  }
  double total = 0;  // of one device's parts; rounded once
  for (size_t i = 0; i < context.num_inputs(); ++i) {
    if (!counts_part(context.input_meta(i), context.device())) continue;
    at::Tensor x = readable(input(context, i));
    with_arithmetic_type(x, [&]<class T>(T) {
      // Four running sums, so that the additions can overlap; a fixed order.
      const T* data = x.const_data_ptr<T>();
      double sums[4] = {0, 0, 0, 0};
      for (int64_t k = 0, n = x.numel(); k < n; ++k)
        sums[k & 3] += static_cast<double>(data[k]) * static_cast<double>(data[k]);
      total += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    });
  }
  NativeTensor out = NativeTensor::empty(Shape{}, context.output_meta(0).dtype);
  visit_dtype(out.dtype(), [&]<class T>() { *reinterpret_cast<T*>(out.data()) = static_cast<T>(total); });
  context.output(0) = std::move(out);
}

void scale_kernel(KernelContext& context) {
  const auto count = static_cast<size_t>(context.attributes<ListAttrs>().count);
  at::Tensor factor = input(context, count);
  for (size_t i = 0; i < count; ++i) {
    const at::Tensor& x = input(context, i);
    if (context.may_reuse(i) && x.is_non_overlapping_and_dense()) {
      at::Tensor same = x;
      set_output(context, i, same.mul_(factor.to(x.scalar_type())));
    } else {
      set_output(context, i, x.mul(factor.to(x.scalar_type())));
    }
  }
}
#endif

std::vector<Layout> layouts_of(const std::vector<Tensor>& tensors, size_t times) {
  std::vector<Layout> out;
  for (size_t k = 0; k < times; ++k) {
    for (const Tensor& tensor : tensors) out.push_back(tensor.layout());
  }
  return out;
}

void need_list(const char* op, const std::vector<Tensor>& first, const std::vector<Tensor>& other) {
  if (first.size() == other.size()) return;
  throw UserError(std::string("[") + op + "] lists of " + std::to_string(first.size()) + " and " +
                  std::to_string(other.size()) + " tensors, they must be equally long");
}

void append_number(const char* op, std::vector<Tensor>& to, const Tensor& number) {
  if (!number.defined()) return;
  if (number.numel() != 1 || number.dtype() != kInt64 || !number.layout().is_replicated())
    throw UserError(std::string("[") + op + "] the step's number is " + number.meta().str() +
                    ", expected one int64, Replicate");
  to.push_back(number);
}

void append(std::vector<Tensor>& to, const std::vector<Tensor>& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

constinit OperatorDef adamw_step_op = {
    .name = "adamw_step",
    .signature = "adamw_step(params, grads, m, v, lr, step, constants) -> (params, m, v)",
    .attributes = attribute_codec<ListAttrs>(),
    .infer = adamw_infer,
    .kernel = DTORCH_KERNEL(adamw_kernel),
    .placement_class = PlacementClass::kAnyLayout,
    .is_step = true};
constinit OperatorDef sgd_step_op = {
    .name = "sgd_step",
    .signature = "sgd_step(params, grads, buffers, lr, constants) -> (params, buffers)",
    .attributes = attribute_codec<ListAttrs>(),
    .infer = sgd_infer,
    .kernel = DTORCH_KERNEL(sgd_kernel),
    .placement_class = PlacementClass::kAnyLayout,
    .is_step = true};
constinit OperatorDef sum_of_squares_op = {.name = "sum_of_squares",
                                           .signature = "sum_of_squares(tensors) -> Tensor",
                                           .infer = squares_infer,
                                           .kernel = DTORCH_KERNEL(squares_kernel),
                                           .placement_class = PlacementClass::kAnyLayout};
constinit OperatorDef scale_all_op = {.name = "scale_all",
                                      .signature = "scale_all(tensors, factor) -> tensors",
                                      .attributes = attribute_codec<ListAttrs>(),
                                      .infer = scale_infer,
                                      .kernel = DTORCH_KERNEL(scale_kernel),
                                      .placement_class = PlacementClass::kAnyLayout};

AdamWResult adamw_step(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                       const std::vector<Tensor>& first_moments, const std::vector<Tensor>& second_moments, double lr,
                       int64_t step, const AdamWConstants& constants, const Tensor& number, Where where) {
  need_list("adamw_step", params, grads);
  need_list("adamw_step", params, first_moments);
  need_list("adamw_step", params, second_moments);
  std::vector<Tensor> in = params;
  append(in, grads);
  append(in, first_moments);
  append(in, second_moments);
  append_number("adamw_step", in, number);
  const auto n = params.size();
  const ListAttrs attributes{.count = static_cast<int64_t>(n),
                             .beta1 = constants.beta1,
                             .beta2 = constants.beta2,
                             .eps = constants.eps,
                             .weight_decay = constants.weight_decay,
                             .has_number = number.defined()};
  const Scalar scalars[] = {Scalar::of(lr), Scalar::of_int(step)};
  const std::vector<Layout> layouts = layouts_of(params, 3);
  std::vector<Tensor> out =
      record_list(adamw_step_op, attributes, in, 3 * n, where, {.scalars = scalars, .output_layouts = layouts});
  auto part = [&](size_t k) {
    return std::vector<Tensor>(out.begin() + static_cast<int64_t>(k * n),
                               out.begin() + static_cast<int64_t>((k + 1) * n));
  };
  return {part(0), part(1), part(2)};
}

SgdResult sgd_step(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                   const std::vector<Tensor>& buffers, double lr, const SgdConstants& constants, const Tensor& number,
                   Where where) {
  need_list("sgd_step", params, grads);
  if (!buffers.empty()) need_list("sgd_step", params, buffers);
  std::vector<Tensor> in = params;
  append(in, grads);
  append(in, buffers);
  append_number("sgd_step", in, number);
  const size_t n = params.size(), kinds = constants.momentum != 0 ? 2 : 1;
  const ListAttrs attributes{.count = static_cast<int64_t>(n),
                             .weight_decay = constants.weight_decay,
                             .momentum = constants.momentum,
                             .nesterov = constants.nesterov,
                             .has_buffers = !buffers.empty(),
                             .has_number = number.defined()};
  const Scalar scalars[] = {Scalar::of(lr)};
  const std::vector<Layout> layouts = layouts_of(params, kinds);
  std::vector<Tensor> out =
      record_list(sgd_step_op, attributes, in, kinds * n, where, {.scalars = scalars, .output_layouts = layouts});
  SgdResult result;
  result.params.assign(out.begin(), out.begin() + static_cast<int64_t>(n));
  result.buffers.assign(out.begin() + static_cast<int64_t>(n), out.end());
  return result;
}

Tensor sum_of_squares(const std::vector<Tensor>& tensors, Where where) {
  if (tensors.empty()) throw at_line(UserError("[sum_of_squares] no tensors"), where);
  SourceScope scope(where);
  std::vector<Tensor> in;
  for (const Tensor& tensor : tensors) in.push_back(tensor.reduced(where));
  const DeviceMesh& mesh = tensors[0].mesh();
  const Layout layouts[] = {Layout(mesh, Placements(mesh.num_axes(), Partial()), 0)};
  return record_list(sum_of_squares_op, NoAttrs{}, in, 1, where, {.output_layouts = layouts})[0].reduced(where);
}

std::vector<Tensor> scale_all(const std::vector<Tensor>& tensors, const Tensor& factor, Where where) {
  if (factor.numel() != 1 || !factor.layout().is_replicated()) {
    throw at_line(UserError("[scale_all] the factor is " + factor.meta().str() + ", expected one number, Replicate"),
                  where);
  }
  std::vector<Tensor> in = tensors;
  in.push_back(factor);
  const ListAttrs attributes{.count = static_cast<int64_t>(tensors.size())};
  const std::vector<Layout> layouts = layouts_of(tensors, 1);
  return record_list(scale_all_op, attributes, in, tensors.size(), where, {.output_layouts = layouts});
}

}  // namespace dtorch
