// topk(x, k, dim) -> {values, indices}: the k largest or smallest elements in order; of equal ones the smaller index
// first, so that the result depends on no layout and its first is what max and min give. NaN is the largest. kthvalue
// is the last of the k smallest. Other dims keep their shards. Over a sharded dim every device finds the best k of its
// part and their global indices; these candidates are gathered, and the best of them chosen (topk_of_candidates).
// Gradient: g put back to its positions.
#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/index/operators.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/move/combine.h"
#include "ops/shape/functions.h"
#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#endif

namespace dtorch {

extern OperatorDef topk_op, topk_of_candidates_op, kthvalue_op;

namespace {

struct TopkAttrs {
  int64_t dim = 0;
  int64_t k = 0;
  bool largest = true;
  bool by_part = false;  // k of every part, or as many as the largest part has
  template <class V>
  void fields(V& v) {
    v("dim", dim);
    v("k", k);
    v("largest", largest);
    v("by_part", by_part);
  }
};

// Every part has the same number of candidates, so that the result is split as evenly as the axes say.
std::vector<OutputMeta> topk_infer(const InferContext& context) {
  const auto& attributes = context.attributes<TopkAttrs>();
  Shape shape = context.shape(0);
  if (attributes.by_part) {
    const int64_t parts = math::shape_by_part(*context.inputs[0], {attributes.dim})[attributes.dim];
    shape[attributes.dim] = parts * std::min(attributes.k, (shape[attributes.dim] + parts - 1) / parts);
  } else if (shape.ndim() > 0) {
    shape[attributes.dim] = attributes.k;
  }
  return {{shape, context.dtype(0)}, {shape, kInt64}};
}
Rule topk_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<TopkAttrs>();
  const int64_t ndim = context.shape(0).ndim(), dim[] = {attributes.dim};
  const bool blocks = ndim > 0 && !attributes.by_part;
  Rule rule = pointwise_except_rule(ndim, blocks ? dim : std::span<const int64_t>(), Linear::kNo);
  rule.input_letters.resize(context.inputs.size(), rule.input_letters[0]);
  rule.output_letters.push_back(rule.output_letters[0]);
  for (Row& row : rule.rows) {
    row.inputs.resize(context.inputs.size(), row.inputs[0]);
    row.outputs.push_back(row.outputs[0]);
  }
  return rule;
}

#if DTORCH_WITH_KERNELS
// The best k of rows [rows, n] in order, into rows [rows, k]; what n lacks is filled with the worst value and the
// largest index. numbers: of the elements; null: first_number, first_number + 1, ...
template <class T>
struct Selection {
  const T* values;
  const int64_t* numbers;
  int64_t first_number, num_rows, n, k;
  T worst;
  T* best_values;
  int64_t* best_numbers;

  template <bool kLargest>
  void run() const {
    std::vector<int64_t> order(static_cast<size_t>(n));
    const int64_t found = std::min(k, n);
    for (int64_t row = 0; row < num_rows; ++row) {
      const T* own = values + row * n;
      const int64_t* own_numbers = numbers ? numbers + row * n : nullptr;
      std::iota(order.begin(), order.end(), int64_t{0});
      std::partial_sort(order.begin(), order.begin() + found, order.end(), [&](int64_t a, int64_t b) {
        const auto x = compared(own[a]), y = compared(own[b]);
        if (comes_before<kLargest>(x, y)) return true;
        if (comes_before<kLargest>(y, x)) return false;
        return own_numbers ? own_numbers[a] < own_numbers[b] : a < b;
      });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t at = i < found ? order[static_cast<size_t>(i)] : -1;
        best_values[row * k + i] = at < 0 ? worst : own[at];
        best_numbers[row * k + i] = at < 0        ? std::numeric_limits<int64_t>::max()
                                    : own_numbers ? own_numbers[at]
                                                  : first_number + at;
      }
    }
  }

 private:
  static auto compared(T value) {
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
      return static_cast<float>(value);
    else
      return value;
  }
  template <bool kLargest, class V>
  static bool comes_before(V x, V y) {
    const bool x_is_nan = x != x, y_is_nan = y != y;
    if (x_is_nan || y_is_nan) return kLargest ? x_is_nan && !y_is_nan : y_is_nan && !x_is_nan;
    return kLargest ? x > y : x < y;
  }
};

at::Tensor rows_along(const at::Tensor& x, int64_t dim) {
  return x.dim() == 0 ? x.reshape({1}) : x.movedim(dim, -1).contiguous();
}
at::Tensor back_along(const at::Tensor& rows, int64_t dim, int64_t ndim) {
  return ndim == 0 ? rows.reshape({}) : rows.movedim(-1, dim).contiguous();
}

// The same as Selection for other devices than the CPU: a stable sort, since equal elements lie in the order of their
// numbers, of candidates as well.
std::pair<at::Tensor, at::Tensor> sorted_best(const at::Tensor& x, const at::Tensor& numbers, int64_t first_number,
                                              int64_t k, bool largest, const at::Scalar& worst) {
  const int64_t found = std::min(k, x.size(-1));
  const auto [sorted, order] = x.sort(/*stable=*/true, -1, largest);
  at::Tensor values = sorted.narrow(-1, 0, found), indices = order.narrow(-1, 0, found);
  indices = numbers.defined() ? numbers.gather(-1, indices) : indices.add(first_number);
  if (found == k) return {values, indices};
  return {at::constant_pad_nd(values, {0, k - found}, worst),
          at::constant_pad_nd(indices, {0, k - found}, std::numeric_limits<int64_t>::max())};
}

// Of candidates input 1 has the numbers.
void topk_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<TopkAttrs>();
  const int64_t dim = attributes.dim, ndim = input(context, 0).dim();
  const DType dtype = context.output_meta(0).dtype;
  const at::Tensor x = rows_along(input(context, 0), dim);
  const at::Tensor numbers = context.num_inputs() > 1 ? rows_along(input(context, 1), dim) : at::Tensor();
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = ndim == 0 ? 1 : context.output_box(0).size[dim];
  // Nothing comes after NaN among the smallest.
  at::Scalar worst = math::worst_value(dtype, attributes.largest);
  if (!attributes.largest && is_floating(dtype)) worst = std::numeric_limits<double>::quiet_NaN();
  if (!x.is_cpu()) {
    auto [values, indices] = sorted_best(x, numbers, ndim == 0 ? 0 : context.input_box(0).offset[dim], sizes.back(),
                                         attributes.largest, worst);
    set_output(context, 0, back_along(values, dim, ndim));
    set_output(context, 1, back_along(indices, dim, ndim));
    return;
  }
  const at::Tensor values = at::empty(sizes, x.options()), indices = at::empty(sizes, x.options().dtype(at::kLong));
  visit_dtype(dtype, [&]<class T>() {
    T worst_value;
    if constexpr (std::is_integral_v<T>) {
      worst_value = static_cast<T>(worst.toLong());
    } else {
      worst_value = T(worst.to<float>());
    }
    const Selection<T> selection{.values = static_cast<const T*>(x.const_data_ptr()),
                                 .numbers = numbers.defined() ? numbers.const_data_ptr<int64_t>() : nullptr,
                                 .first_number = ndim == 0 ? 0 : context.input_box(0).offset[dim],
                                 .num_rows = sizes.back() == 0 ? 0 : values.numel() / sizes.back(),
                                 .n = x.size(-1),
                                 .k = sizes.back(),
                                 .worst = worst_value,
                                 .best_values = static_cast<T*>(values.mutable_data_ptr()),
                                 .best_numbers = indices.mutable_data_ptr<int64_t>()};
    if (attributes.largest) {
      selection.template run<true>();
    } else {
      selection.template run<false>();
    }
  });
  set_output(context, 0, back_along(values, dim, ndim));
  set_output(context, 1, back_along(indices, dim, ndim));
}
#endif

std::vector<Tensor> topk_gradient(const GradientContext& context) {
  if (!context.grad_output(0).defined()) return {Tensor()};
  const int64_t dim = context.attributes<TopkAttrs>().dim;
  const Shape& shape = context.input_meta(0).global_shape;
  const int64_t size = shape.ndim() == 0 ? 1 : shape[dim];
  if (shape.ndim() == 0 && context.attributes<TopkAttrs>().k == 0) return {Tensor()};
  return {math::scatter_along(context.grad_output(0), context.output(1), dim, size)};
}

std::vector<Sample> topk_samples() {
  const auto call = [](int64_t k, int64_t dim, bool largest) {
    return [=](const std::vector<Tensor>& in) {
      auto [values, indices] = topk(in[0], k, dim, largest);
      return std::vector<Tensor>{values, indices};
    };
  };
  return {{.name = "last dim", .inputs = {{{3, 5}}}, .call = call(2, -1, true)},
          {.name = "smallest, most of a part", .inputs = {{{7, 2}, kFloat64}}, .call = call(4, 0, false)},
          {.name = "equal elements, size 1",
           .inputs = {{{7, 1}, kInt64, SampleFill::kIndices, 3, false}},
           .call = call(5, 0, true)},
          {.name = "none", .inputs = {{{2, 3}}}, .call = call(0, 1, true)}};
}
std::vector<Sample> kthvalue_samples() {
  const auto call = [](int64_t k, int64_t dim, bool keepdim) {
    return [=](const std::vector<Tensor>& in) {
      auto [values, indices] = kthvalue(in[0], k, dim, keepdim);
      return std::vector<Tensor>{values, indices};
    };
  };
  return {{.name = "last dim", .inputs = {{{3, 5}}}, .call = call(2, -1, false)},
          {.name = "size 1", .inputs = {{{7, 1}, kFloat64}}, .call = call(6, 0, true)}};
}

std::pair<Tensor, Tensor> topk_of(const char* op, const Tensor& input, int64_t k, int64_t dim, bool largest,
                                  const Where& where) {
  const TopkAttrs attributes{math::dim_of_call(dim, input, op, where), k, largest};
  const int64_t size = input.ndim() == 0 ? 1 : input.shape()[attributes.dim];
  if (k < 0 || k > size) {
    throw at_line(ShapeError(std::string("[") + op + "] k is " + std::to_string(k) + ", dim " + std::to_string(dim) +
                             " of " + input.shape().str() + " has " + std::to_string(size) + " elements"),
                  where);
  }
  const Tensor x = reduce_pending(op, input, {}, where);
  if (!math::any_sharded(x, {attributes.dim})) {
    auto [values, indices] = record_many<2>(topk_op, attributes, {&x}, where);
    return {values, indices};
  }
  require_implicit_redistribution(op, x, unsharded_layout(x, attributes.dim), where);
  TopkAttrs of_parts = attributes;
  of_parts.by_part = true;
  Tensor values, indices;
  {
    NoGrad no_grad;
    auto [part_values, part_indices] = record_many<2>(topk_op, of_parts, {&x}, where);
    const Tensor all_values = shaping::gather_dim(op, part_values, attributes.dim, where);
    const Tensor all_indices = shaping::gather_dim(op, part_indices, attributes.dim, where);
    auto best = record_many<2>(topk_of_candidates_op, attributes, {&all_values, &all_indices}, where);
    values = best[0];
    indices = best[1];
  }
  if (grad_enabled() && x.requires_grad()) {
    const auto gradient = [attributes, indices, size](const GradientContext& context) {
      return std::vector<Tensor>{math::scatter_along(context.grad_output(0), indices, attributes.dim, size)};
    };
    set_custom_gradient(op, {&x, 1}, {&values, 1}, gradient, where);
  }
  return {values, indices};
}

}  // namespace

constinit OperatorDef topk_op = {
    .name = "topk",
    .signature = "topk(x, k, dim, largest) -> (Tensor, Tensor)",
    .attributes = attribute_codec<TopkAttrs>(),
    .infer = topk_infer,
    .rule = topk_rule,
    .kernel = DTORCH_KERNEL(topk_kernel),
    .gradient = topk_gradient,
    .samples = topk_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
    .saved_outputs = 2,
};
constinit OperatorDef topk_of_candidates_op = {
    .name = "topk_of_candidates",
    .signature = "topk/kthvalue(values, indices, k, dim, largest) -> (Tensor, Tensor)",
    .attributes = attribute_codec<TopkAttrs>(),
    .infer = topk_infer,
    .rule = topk_rule,
    .kernel = DTORCH_KERNEL(topk_kernel),
    .saved_inputs = 0,
};
// A composition.
constinit OperatorDef kthvalue_op = {
    .name = "kthvalue",
    .signature = "kthvalue(x, k, dim, keepdim) -> (Tensor, Tensor)",
    .samples = kthvalue_samples,
    .placement_class = PlacementClass::kCombines,
};

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool /*sorted*/, Where where) {
  return topk_of("topk", x, k, dim, largest, where);
}

std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim, Where where) {
  SourceScope scope(where);
  if (k < 1) throw at_line(ShapeError("[kthvalue] k is " + std::to_string(k) + ", counts from 1"), where);
  auto [values, indices] = topk_of("kthvalue", x, k, dim, false, where);
  if (x.ndim() == 0) return {values, indices};
  const int64_t d = math::dim_of_call(dim, x, "kthvalue", where);
  values = slice(values, d, k - 1, k, 1, where);
  indices = slice(indices, d, k - 1, k, 1, where);
  if (keepdim) return {values, indices};
  return {squeeze(values, d, where), squeeze(indices, d, where)};
}

}  // namespace dtorch
