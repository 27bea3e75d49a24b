// What the rearranging operators share: rules, gathering and sharding again, definitions of compositions. For the files
// of operators, not for users.
#pragma once
#include <utility>

#include "ops/shape/operators.h"
#include "runtime/client/call_error.h"

namespace dtorch {

std::vector<OperatorDef*> rearranging_operators();

namespace shaping {

// The definition of a function that records only other operators: the table and the checker know it, nobody records it.
constexpr OperatorDef composition(const char* name, const char* signature, SamplesFn samples, const char* linear_in,
                                  PlacementClass klass = PlacementClass::kRefuses) {
  OperatorDef def;
  def.name = name;
  def.signature = signature;
  def.samples = samples;
  def.linear_in = linear_in;
  def.placement_class = klass;
  return def;
}

// A sample's call that has one result.
template <class F>
auto single(F call) {
  return [call](const std::vector<Tensor>& in) { return std::vector<Tensor>{call(in)}; };
}

// Dims in [0, ndim), ascending; throws ShapeError when one is outside or stands twice.
std::vector<int64_t> distinct_dims(const char* op, const std::vector<int64_t>& dims, int64_t ndim, const Where& where);

// Of one input and one output of one rank: dims outside `blocked` keep their shards, Partial of every kind passes.
Rule keeping_rule(int64_t ndim, std::span<const int64_t> blocked);
// The same without Partial(max) and (min): of operators that write zeros where nothing comes from the input.
Rule without_extremes(Rule rule);

// The axes that shard one of `dims` become Replicate. Throws PlacementError when implicit redistribution is off.
Tensor gather_dims(const char* op, const Tensor& x, std::span<const int64_t> dims, const Where& where);
// What was gathered of x is sharded again in `result`, whose dim to[d] is x's dim d (-1: none): local slices. Without
// `to` the dims are the same.
Tensor shard_as(const Tensor& x, const Tensor& result, const Where& where, std::span<const int64_t> to = {});

}  // namespace shaping
}  // namespace dtorch
