// arange(start, end, step) -> [n], n = ceil((end - start) / step); eye(n, m). scalars of arange: [start, step].
#include <cmath>
#include <cstring>

#include "ops/create/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/arange.h>

#include "dtorch/kernel.h"
#endif

namespace dtorch {
namespace {

using namespace create;

struct ArangeAttrs : CreateAttrs {
  bool floating = false;  // start and step are doubles
  template <class V>
  void fields(V& v) {
    CreateAttrs::fields(v);
    v("floating", floating);
  }
};

std::vector<OutputMeta> arange_infer(const InferContext& context) {
  const auto& attributes = context.attributes<ArangeAttrs>();
  check_shape(context.op, attributes.shape);
  return {{attributes.shape, attributes.dtype}};
}

// Element i is start + i * step, computed in double (integers: in int64), then rounded to the dtype.
void fill_range(const KernelContext& context, NativeTensor* part, bool floating) {
  const Scalar &start = context.scalar(0), &step = context.scalar(1);
  const int64_t first = context.output_box(0).offset[0];
  visit_dtype(part->dtype(), [&]<class T>() {
    T* values = reinterpret_cast<T*>(part->data());
    for (int64_t i = 0; i < part->num_elements(); ++i) {
      values[i] = floating ? static_cast<T>(start.as_double() + static_cast<double>(first + i) * step.as_double())
                           : static_cast<T>(start.as_int() + (first + i) * step.as_int());
    }
  });
}

void arange_kernel(KernelContext& context) {
  bool done = false;
  NativeTensor part = make_part(context, &done);
  const bool floating = context.attributes<ArangeAttrs>().floating;
#if DTORCH_WITH_KERNELS
  // With a fractional step LibTorch's last bits depend on its vector width and on where the range starts: only the
  // whole range has them on every layout.
  const double start = floating ? context.scalar(0).as_double() : 0,
               step = floating ? context.scalar(1).as_double() : 0;
  if (!done && (start != std::trunc(start) || step != std::trunc(step))) {
    const int64_t count = context.output_meta(0).global_shape[0];
    at::Tensor range = at::empty({count}, tensor_options(part.dtype()));
    at::arange_out(range, start, start + step * (static_cast<double>(count) - 0.5), step);
    const Box& box = context.output_box(0);
    return set_output(context, 0, range.narrow(0, box.offset[0], box.size[0]).clone());
  }
#endif
  if (!done) fill_range(context, &part, floating);
  context.output(0) = std::move(part);
}

void eye_kernel(KernelContext& context) {
  bool done = false;
  NativeTensor part = make_part(context, &done);
  const Box& box = context.output_box(0);
  if (!done && part.num_bytes() > 0) {
    std::memset(part.data(), 0, static_cast<size_t>(part.num_bytes()));
    visit_dtype(part.dtype(), [&]<class T>() {
      T* values = reinterpret_cast<T*>(part.data());
      for (int64_t i = 0; i < box.size[0]; ++i) {
        const int64_t column = box.offset[0] + i - box.offset[1];
        if (column >= 0 && column < box.size[1]) values[i * box.size[1] + column] = static_cast<T>(1);
      }
    });
  }
  context.output(0) = std::move(part);
}

std::vector<Sample> arange_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call = [](const std::vector<Tensor>&) { return std::vector<Tensor>{arange(7)}; }},
          {.name = "fractional step",
           .inputs = {},
           .call = [](const std::vector<Tensor>&) { return std::vector<Tensor>{arange(-1.0, 2.0, 0.3)}; }},
          {.name = "empty", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{arange(0)};
           }}};
}
std::vector<Sample> eye_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call = [](const std::vector<Tensor>&) { return std::vector<Tensor>{eye(5, 3)}; }},
          {.name = "size 1", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{eye(1, {.dtype = kInt64})};
           }}};
}

}  // namespace

constinit OperatorDef arange_op = {
    .name = "arange",
    .signature = "arange(start, end, step, options) -> Tensor",
    .attributes = attribute_codec<ArangeAttrs>(),
    .infer = arange_infer,
    .kernel = arange_kernel,
    .samples = arange_samples,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};
constinit OperatorDef eye_op = {
    .name = "eye",
    .signature = "eye(n, m, options) -> Tensor",
    .attributes = attribute_codec<CreateAttrs>(),
    .infer = infer_created,
    .kernel = eye_kernel,
    .samples = eye_samples,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};

Tensor arange(Number start, Number end, Number step, const TensorOptions& options, Where where) {
  const double span = end.floating - start.floating;
  if (step.floating == 0 || (span != 0 && (span > 0) != (step.floating > 0)) || !std::isfinite(span) ||
      !std::isfinite(step.floating)) {
    throw at_line(
        UserError("[arange] from " + std::to_string(start.floating) + " to " + std::to_string(end.floating) + " by " +
                  std::to_string(step.floating) + ": step must be finite, not 0, and lead from start to end"),
        where);
  }
  ArangeAttrs attributes;
  attributes.floating = start.is_floating || end.is_floating || step.is_floating;
  attributes.shape = {static_cast<int64_t>(std::ceil(span / step.floating))};
  if (!attributes.floating) {  // exact also beyond 2^53
    const int64_t distance = end.integer - start.integer;
    attributes.shape = {distance / step.integer + (distance % step.integer != 0 ? 1 : 0)};
  }
  attributes.dtype = options.dtype.given ? options.dtype.value : attributes.floating ? kFloat32 : kInt64;
  const auto scalar_of = [&](const Number& n) {
    return attributes.floating ? Scalar::of(n.floating) : Scalar::of_int(n.integer);
  };
  const Scalar scalars[] = {scalar_of(start), scalar_of(step)};
  const Layout layout = options.layout(1, where);
  Tensor tensor = record(arange_op, attributes, {}, where, {.scalars = scalars, .output_layouts = {&layout, 1}});
  if (options.requires_grad) tensor.requires_grad_();
  return tensor;
}
Tensor arange(Number end, const TensorOptions& options, Where where) { return arange(0, end, 1, options, where); }
Tensor arange(Number start, Number end, const TensorOptions& options, Where where) {
  return arange(start, end, 1, options, where);
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& options, Where where) {
  return record_created(eye_op, {{n, m}, options.dtype}, options.layout(2, where), {}, options.requires_grad, where);
}
Tensor eye(int64_t n, const TensorOptions& options, Where where) { return eye(n, n, options, where); }

}  // namespace dtorch
