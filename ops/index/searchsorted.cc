// searchsorted(sorted, values): how many elements of the sorted sequence are below a value (right: not above it), which
// is where it would go. sorted [N] for any values, or [..., N] with the leading dims of values [..., M]. These dims
// keep their shards. The counts of the parts of a sequence add up: sharding N gives Partial(sum), which is then
// reduced. Counts grow with the values, so that their Partial(max) passes. bucketize(x, boundaries) is
// searchsorted(boundaries, x). No gradient.
#include "ops/index/operators.h"
#include "ops/math/operators.h"
#include "ops/math/products.h"
#include "ops/move/combine.h"
#include "runtime/client/call_error.h"
#if DTORCH_WITH_KERNELS
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/searchsorted_cpu_dispatch.h>
#include <ATen/ops/zeros.h>

#include "dtorch/kernel.h"
#include "ops/create/aten_call.h"
#endif

namespace dtorch {

extern OperatorDef searchsorted_op, bucketize_op;

namespace {

struct SearchAttrs {
  bool int32 = false;
  bool right = false;
  template <class V>
  void fields(V& v) {
    v("int32", int32);
    v("right", right);
  }
};

std::vector<OutputMeta> search_infer(const InferContext& context) {
  const Shape &sorted = context.shape(0), &values = context.shape(1);
  bool fits = sorted.ndim() == 1 || (sorted.ndim() > 1 && sorted.ndim() == values.ndim());
  for (int64_t d = 0; fits && sorted.ndim() > 1 && d + 1 < sorted.ndim(); ++d) fits = sorted[d] == values[d];
  if (!fits) {
    throw ShapeError("[searchsorted] the sequence is " + sorted.str() + ", the values " + values.str() +
                     "; the sequence must have one dim, or the values' dims with equal sizes of all but the last");
  }
  if (context.dtype(0) != context.dtype(1) || context.dtype(0) == kBool) {
    throw DTypeError(std::string("[searchsorted] the sequence is ") + name_of(context.dtype(0)) + ", the values " +
                     name_of(context.dtype(1)) + "; they must have one dtype, not bool");
  }
  return {{values, context.attributes<SearchAttrs>().int32 ? kInt32 : kInt64}};
}

Rule search_rule(const InferContext& context, std::span<const OutputMeta>) {
  const int64_t num_sorted = context.shape(0).ndim(), num_values = context.shape(1).ndim();
  Letters values, sorted;
  for (int64_t d = 0; d < num_values; ++d) values.push_back(static_cast<int16_t>(d + 1));
  for (int64_t d = 0; d + 1 < num_sorted; ++d) sorted.push_back(values[d]);
  sorted.push_back(static_cast<int16_t>(num_values + 1));
  Rule rule = math::letters_rule({sorted, values}, values);
  rule.rows.push_back({{Replicate(), Partial(kMax)}, {Partial(kMax)}});
  return rule;
}

#if DTORCH_WITH_KERNELS
void search_kernel(KernelContext& context) {
  const auto& attributes = context.attributes<SearchAttrs>();
  const at::Tensor sorted = input(context, 0).contiguous(), values = input(context, 1).contiguous();
  if (sorted.numel() == 0 || values.numel() == 0) {
    set_output(context, 0,
               at::zeros(output_sizes(context, 0), values.options().dtype(scalar_type(context.output_meta(0).dtype))));
    return;
  }
  set_output(context, 0, DTORCH_ATEN(searchsorted)(sorted, values, attributes.int32, attributes.right));
}
#endif

// A sequence 0, 1, ... of 7, whatever the layout; the values are looked up between its elements.
const SampleInput kSequence{{7}, kInt64, SampleFill::kIota, 0, false};

std::vector<Sample> search_samples() {
  return {
      {.name = "one sequence",
       .inputs = {kSequence, {{5, 3}, kInt64, SampleFill::kIndices, 9, false}},
       .call =
           [](const std::vector<Tensor>& in) {
             return std::vector<Tensor>{searchsorted(in[0], in[1]), searchsorted(in[0], in[1], true, true)};
           }},
      {.name = "a sequence a row, size 1",
       .inputs = {{{3, 5}, kFloat64, SampleFill::kIota, 0, false}, {{3, 1}, kFloat64, SampleFill::kNormal, 0, false}},
       .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{searchsorted(in[0], in[1])}; }}};
}
std::vector<Sample> bucketize_samples() {
  return {{.name = "uneven",
           .inputs = {{{5, 2}, kInt64, SampleFill::kIndices, 9, false}, kSequence},
           .call =
               [](const std::vector<Tensor>& in) {
                 return std::vector<Tensor>{bucketize(in[0], in[1]), bucketize(in[0], in[1], false, true)};
               }},
          {.name = "size 1",
           .inputs = {{{1, 3}, kFloat64, SampleFill::kNormal, 0, false}, {{5}, kFloat64, SampleFill::kIota, 0, false}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{bucketize(in[0], in[1], true)}; }}};
}

Tensor search(const char* op, const Tensor& sorted, const Tensor& values, const SearchAttrs& attributes,
              const Where& where) {
  Tensor sequence = reduce_pending(op, sorted, {}, where);
  const Tensor looked_up = reduce_pending(op, values, kMax, where);
  if (sequence.ndim() > 0 && sequence.mesh() == looked_up.mesh()) {
    const int64_t last = sequence.ndim() - 1;
    require_implicit_redistribution(op, sequence, unsharded_layout(sequence, last), where);
    // Counts add up for values that all parts of the sequence see; else the sequence is gathered.
    Placements placements = sequence.placements();
    for (int64_t axis = 0; axis < placements.size(); ++axis) {
      const bool split = placements[axis].is_shard(last);
      if (split && !looked_up.placements()[axis].is_replicate()) placements[axis] = Replicate();
    }
    const Layout layout = sequence.layout().with_placements(placements, sequence.ndim());
    if (layout != sequence.layout()) sequence = sequence.redistribute(layout, where);
  }
  return math::combine(op, looked_up, record(searchsorted_op, attributes, {&sequence, &looked_up}, where), where);
}

}  // namespace

constinit OperatorDef searchsorted_op = {
    .name = "searchsorted",
    .signature = "searchsorted(sorted, values, out_int32, right) -> Tensor",
    .attributes = attribute_codec<SearchAttrs>(),
    .infer = search_infer,
    .rule = search_rule,
    .kernel = DTORCH_KERNEL(search_kernel),
    .samples = search_samples,
    .placement_class = PlacementClass::kCombines,
    .saved_inputs = 0,
};
// A composition.
constinit OperatorDef bucketize_op = {
    .name = "bucketize",
    .signature = "bucketize(x, boundaries, out_int32, right) -> Tensor",
    .samples = bucketize_samples,
    .placement_class = PlacementClass::kCombines,
};

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool out_int32, bool right, Where where) {
  return search("searchsorted", sorted_sequence, values, {out_int32, right}, where);
}
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32, bool right, Where where) {
  if (boundaries.ndim() != 1) {
    throw at_line(ShapeError("[bucketize] the boundaries are " + boundaries.shape().str() + ", must have one dim"),
                  where);
  }
  return search("bucketize", boundaries, x, {out_int32, right}, where);
}

}  // namespace dtorch
