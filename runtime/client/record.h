// The one way into the system: record(operator, attributes, inputs). Infers shape, dtype and placements (cached),
// throws at the call site when the inputs are illegal, inserts local conversions, appends to the Graph's stream and to
// the tape. Never waits, except when the Graph's credit limit is reached.
#pragma once
#include <array>
#include <initializer_list>
#include <span>
#include <vector>

#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"
#include "runtime/client/tensor.h"

namespace dtorch {

struct RecordCall {
  const OperatorDef& op;
  std::string_view attributes;  // encoded
  std::span<const Tensor* const> inputs;
  std::span<const Scalar> scalars = {};
  std::span<const Layout> output_layouts = {};  // given: the rule isn't asked (creation, redistribute)
  // One reference, taken over, also when the call throws:
  //   auto payload = make_intrusive<RecordPayload>(); ...; payload->add_ref(); record(..., {.payload = payload.get()});
  RecordPayload* payload = nullptr;
};
// outputs: one Tensor for each output that the operator infers; none of them is an input. Throws PlacementError,
// ShapeError, DTypeError, MeshError, GraphError or UserError, then nothing has been recorded; and the Graph's failure
// when its executor has ended.
void record_call(const RecordCall& call, std::span<Tensor> outputs, const Where& where);

struct RecordExtras {
  std::span<const Scalar> scalars = {};
  std::span<const Layout> output_layouts = {};
  RecordPayload* payload = nullptr;
};

template <size_t kOutputs = 1, class A = NoAttrs>
std::array<Tensor, kOutputs> record_many(const OperatorDef& op, const A& attributes,
                                         std::initializer_list<const Tensor*> inputs, const Where& where,
                                         const RecordExtras& extras = {}) {
  std::array<Tensor, kOutputs> outputs;
  const CallAttributes encoded(attributes);
  record_call({op, encoded.bytes(), std::span(inputs.begin(), inputs.size()), extras.scalars, extras.output_layouts,
               extras.payload},
              outputs, where);
  return outputs;
}
// Operators with one output.
template <class A = NoAttrs>
Tensor record(const OperatorDef& op, const A& attributes, std::initializer_list<const Tensor*> inputs,
              const Where& where) {
  Tensor output;
  const CallAttributes encoded(attributes);
  record_call({op, encoded.bytes(), std::span(inputs.begin(), inputs.size())}, {&output, 1}, where);
  return output;
}
template <class A = NoAttrs>
Tensor record(const OperatorDef& op, const A& attributes, std::initializer_list<const Tensor*> inputs,
              const Where& where, const RecordExtras& extras) {
  return std::move(record_many<1>(op, attributes, inputs, where, extras)[0]);
}
// Any number of inputs and outputs.
template <class A = NoAttrs>
std::vector<Tensor> record_list(const OperatorDef& op, const A& attributes, const std::vector<Tensor>& inputs,
                                size_t num_outputs, const Where& where, const RecordExtras& extras = {}) {
  std::vector<Tensor> outputs(num_outputs);
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const CallAttributes encoded(attributes);
  record_call({op, encoded.bytes(), pointers, extras.scalars, extras.output_layouts, extras.payload}, outputs, where);
  return outputs;
}

}  // namespace dtorch
