// any(x, dims), all(x, dims): whether an element, or every one, isn't 0. bool; of uint8 uint8, as in PyTorch. Sharding
// a reduced dim gives Partial(max) of any and Partial(min) of all, which is then reduced. A Partial(max) of bool passes
// any, a Partial(min) passes all.
#include "ops/create/aten_call.h"
#include "ops/math/kernels.h"
#include "ops/math/parts.h"
#include "ops/math/reductions.h"
#include "ops/move/combine.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/all.h>
#include <ATen/ops/all_cpu_dispatch.h>
#include <ATen/ops/any.h>
#include <ATen/ops/any_cpu_dispatch.h>
#endif

namespace dtorch {

extern OperatorDef any_op, all_op;

namespace {

using namespace math;

struct AnyAttrs {
  std::vector<int64_t> dims;  // ascending
  bool keepdim = false;
  template <class V>
  void fields(V& v) {
    v("dims", dims);
    v("keepdim", keepdim);
  }
};

std::vector<OutputMeta> any_infer(const InferContext& context) {
  const auto& attributes = context.attributes<AnyAttrs>();
  return {{reduced_shape(context.shape(0), attributes.dims, attributes.keepdim),
           context.dtype(0) == kUInt8 ? kUInt8 : kBool}};
}

template <ReduceOp kReduce>
Rule any_rule(const InferContext& context, std::span<const OutputMeta>) {
  const auto& attributes = context.attributes<AnyAttrs>();
  Rule rule = reduce_rule(context.shape(0).ndim(), attributes.dims, attributes.keepdim, kReduce, Linear::kNo);
  if (context.dtype(0) == kBool) rule.rows.push_back({{Partial(kReduce)}, {Partial(kReduce)}});
  return rule;
}

#if DTORCH_WITH_KERNELS
template <bool kAny>
void any_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<AnyAttrs>();
  const at::Tensor& x = input(context, 0);
  if (attributes.dims.empty()) {
    set_output(context, 0, kAny ? DTORCH_ATEN(any)(x) : DTORCH_ATEN(all)(x));
    return;
  }
  const at::OptionalIntArrayRef dims = attributes.dims;
  set_output(context, 0,
             kAny ? DTORCH_ATEN(any)(x, dims, attributes.keepdim) : DTORCH_ATEN(all)(x, dims, attributes.keepdim));
}
#endif

template <Tensor (*kOverDims)(const Tensor&, const std::vector<int64_t>&, bool, Where),
          Tensor (*kOverAll)(const Tensor&, Where)>
std::vector<Sample> any_samples() {
  return {
      {.name = "all dims",
       .inputs = {{{5, 3}, kBool, SampleFill::kBool}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{kOverAll(in[0], Where::current())}; }},
      {.name = "floats, one dim",
       .inputs = {{{7, 2}, kFloat64, SampleFill::kIndices, 2, false}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{kOverDims(in[0], {0}, true, Where::current()),
                                        kOverDims(in[0], {0, 1}, false, Where::current())};
           }},
      {.name = "integers, size 1 and empty",
       .inputs = {integers({1, 0}, kUInt8)},
       .call = [](const std::vector<Tensor>& in) {
         return std::vector<Tensor>{kOverDims(in[0], {0}, false, Where::current()),
                                    kOverDims(in[0], {1}, false, Where::current())};
       }}};
}

Tensor record_any(const OperatorDef& op, const Tensor& x, const std::vector<int64_t>& dims, bool keepdim,
                  const Where& where) {
  const AnyAttrs attributes{dims_of_call(dims, x, op.name, where), keepdim};
  std::optional<ReduceOp> kept;
  if (x.dtype() == kBool) kept = &op == &any_op ? kMax : kMin;
  const Tensor whole = reduce_pending(op.name, x, kept, where);
  return combine(op.name, whole, record(op, attributes, {&whole}, where), where);
}

}  // namespace

constinit OperatorDef any_op = {
    .name = "any",
    .signature = "any(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<AnyAttrs>(),
    .infer = any_infer,
    .rule = any_rule<kMax>,
    .kernel = DTORCH_KERNEL(any_kernel<true>),
    .samples = any_samples<any, any>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
};
constinit OperatorDef all_op = {
    .name = "all",
    .signature = "all(x, dims, keepdim) -> Tensor",
    .attributes = attribute_codec<AnyAttrs>(),
    .infer = any_infer,
    .rule = any_rule<kMin>,
    .kernel = DTORCH_KERNEL(any_kernel<false>),
    .samples = any_samples<all, all>,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
};

Tensor any(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, Where where) {
  return record_any(any_op, x, dims, keepdim, where);
}
Tensor any(const Tensor& x, Where where) { return record_any(any_op, x, {}, false, where); }
Tensor all(const Tensor& x, const std::vector<int64_t>& dims, bool keepdim, Where where) {
  return record_any(all_op, x, dims, keepdim, where);
}
Tensor all(const Tensor& x, Where where) { return record_any(all_op, x, {}, false, where); }

}  // namespace dtorch
