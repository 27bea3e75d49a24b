// one_hot(ids, num_classes) -> [..., num_classes]: 1 at the id, else 0, in int64. isin(elements, test): whether each
// element stands in test. Layouts: every dim of ids or elements; test is gathered, and what is pending is reduced. No
// gradients.
#include "ops/index/kernels.h"
#include "ops/index/operators.h"
#include "ops/index/placing.h"
#include "ops/math/operators.h"
#include "ops/move/combine.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/isin.h>
#include <ATen/ops/zeros.h>
#endif

namespace dtorch {
namespace {

using namespace indexing;

struct OneHotAttrs {
  int64_t num_classes = 0;
  template <class V>
  void fields(V& v) {
    v("num_classes", num_classes);
  }
};
struct IsinAttrs {
  bool invert = false;
  template <class V>
  void fields(V& v) {
    v("invert", invert);
  }
};

std::vector<OutputMeta> one_hot_infer(const InferContext& context) {
  Shape out = context.shape(0);
  out.push_back(context.attributes<OneHotAttrs>().num_classes);
  return {{out, kInt64}};
}
std::vector<OutputMeta> isin_infer(const InferContext& context) { return {{context.shape(0), kBool}}; }

// Every dim of input 0 is the output's; the other inputs are Replicate.
Rule first_dims_rule(const InferContext& context, std::span<const OutputMeta> outputs) {
  Rule rule;
  for (const TensorMeta* input : context.inputs) rule.input_letters.emplace_back(input->global_shape.ndim(), kNoLetter);
  rule.output_letters.emplace_back(outputs[0].global_shape.ndim(), kNoLetter);
  for (int64_t d = 0; d < context.shape(0).ndim(); ++d) {
    rule.input_letters[0][d] = rule.output_letters[0][d] = static_cast<int16_t>(d + 1);
    Row row{std::vector<Placement>(context.inputs.size()), {Shard(d)}};
    row.inputs[0] = Shard(d);
    rule.rows.push_back(row);
  }
  return rule;
}

#if DTORCH_WITH_KERNELS
void one_hot_kernel(KernelContext& context) {
  const int64_t num_classes = context.attributes<OneHotAttrs>().num_classes;
  const at::Tensor ids = checked_positions(input(context, 0), num_classes, /*wraps=*/false);
  at::Tensor out = at::zeros(output_sizes(context, 0), ids.options());
  if (ids.numel() > 0) out.scatter_(-1, ids.unsqueeze(-1), 1);
  set_output(context, 0, std::move(out));
}
void isin_kernel(KernelContext& context) {
  // LibTorch's isin has no half types and no bool.
  const auto comparable = [](const at::Tensor& x) {
    const bool half = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
    return half ? x.to(at::kFloat) : x.scalar_type() == at::kBool ? x.to(at::kByte) : x;
  };
  set_output(context, 0,
             at::isin(comparable(input(context, 0)), comparable(input(context, 1)), /*assume_unique=*/false,
                      context.attributes<IsinAttrs>().invert));
}
#endif

std::vector<Sample> one_hot_samples() {
  return {{.name = "uneven",
           .inputs = {indices_below(4, {5, 3})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{one_hot(in[0], 4)}; }},
          {.name = "classes by the largest id, size 1",
           .inputs = {indices_below(6, {1, 5}, kInt32)},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{one_hot(in[0])}; }},
          {.name = "no ids", .inputs = {indices_below(4, {0})}, .call = [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{one_hot(in[0], 3)};
           }}};
}
std::vector<Sample> isin_samples() {
  return {{.name = "uneven",
           .inputs = {indices_below(9, {5, 3}), indices_below(9, {4})},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{isin(in[0], in[1])}; }},
          {.name = "inverted, float64, size 1",
           .inputs = {{{1, 5}, kFloat64, SampleFill::kIota, 0, false}, {{3, 2}, kFloat64, SampleFill::kIota, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{isin(in[0], in[1], true)}; }}};
}

}  // namespace

constinit OperatorDef one_hot_op = {.name = "one_hot",
                                    .signature = "one_hot(ids, num_classes) -> Tensor",
                                    .attributes = attribute_codec<OneHotAttrs>(),
                                    .infer = one_hot_infer,
                                    .rule = first_dims_rule,
                                    .kernel = DTORCH_KERNEL(one_hot_kernel),
                                    .samples = one_hot_samples,
                                    .placement_class = PlacementClass::kCombines,
                                    .saved_inputs = 0};
constinit OperatorDef isin_op = {.name = "isin",
                                 .signature = "isin(elements, test, invert) -> Tensor",
                                 .attributes = attribute_codec<IsinAttrs>(),
                                 .infer = isin_infer,
                                 .rule = first_dims_rule,
                                 .kernel = DTORCH_KERNEL(isin_kernel),
                                 .samples = isin_samples,
                                 .placement_class = PlacementClass::kCombines,
                                 .saved_inputs = 0};

Tensor one_hot(const Tensor& given, int64_t num_classes, Where where) {
  SourceScope scope(where);
  need_index("one_hot", given, where);
  const Tensor ids = reduce_pending("one_hot", given, {}, where);
  if (num_classes == -1) {
    if (ids.numel() == 0) {
      throw at_line(ShapeError("[one_hot] " + ids.shape().str() + " has no ids to take num_classes from; pass it"),
                    where);
    }
    num_classes = max(ids, where).item<int64_t>(where) + 1;
  }
  if (num_classes <= 0 && !(num_classes == 0 && ids.numel() == 0)) {
    throw at_line(ShapeError("[one_hot] num_classes is " + std::to_string(num_classes) + ", must be positive or -1"),
                  where);
  }
  return record(one_hot_op, OneHotAttrs{num_classes}, {&ids}, where);
}

Tensor isin(const Tensor& given, const Tensor& test, bool invert, Where where) {
  SourceScope scope(where);
  const Tensor elements = reduce_pending("isin", given, {}, where);
  const Tensor whole = replicated("isin", test, /*pending=*/false, where);
  return record(isin_op, IsinAttrs{invert}, {&elements, &whole}, where);
}

}  // namespace dtorch
