#include "runtime/client/record.h"

#include "runtime/client/check_replicas.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/lineage.h"
#include "runtime/client/named_operator.h"
#include "runtime/client/redistribute_call.h"
#include "runtime/client/thread_state.h"

namespace dtorch {
namespace {

// Buffers of one call, kept by the thread so that a call allocates nothing; a call nested in another (a conversion) has
// its own.
struct CallScratch {
  std::vector<const TensorMeta*> metas;
  std::vector<OperandId> inputs;
  std::vector<OperandId> outputs;
  bool busy = false;
};

class ScratchUse {
 public:
  ScratchUse() : scratch_(kept().busy ? own_ : kept()) { scratch_.busy = true; }
  ~ScratchUse() {
    scratch_.metas.clear();
    scratch_.inputs.clear();
    scratch_.outputs.clear();
    scratch_.busy = false;
  }
  ScratchUse(const ScratchUse&) = delete;
  ScratchUse& operator=(const ScratchUse&) = delete;
  CallScratch& operator*() { return scratch_; }

 private:
  static CallScratch& kept() {
    thread_local CallScratch scratch;
    return scratch;
  }
  CallScratch own_;
  CallScratch& scratch_;
};

GraphCore& graph_of(const RecordCall& call, const SourceLine& where) {
  if (call.inputs.empty()) return current_graph();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i]->defined()) continue;
    throw UserError(std::string("[") + call.op.called() + "] input " + std::to_string(i) +
                    " is undefined (a default-constructed Tensor)\n" + "  called at " + where.str());
  }
  GraphCore& first = call.inputs[0]->value()->graph();
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    GraphCore& other = call.inputs[i]->value()->graph();
    if (&other == &first) continue;
    throw GraphError(std::string("[") + call.op.called() + "] inputs are of different Graphs: input 0 of graph " +
                     std::to_string(first.id()) + ", input " + std::to_string(i) + " of graph " +
                     std::to_string(other.id()) +
                     "; values pass between Graphs by to_host() and from_host()\n  called at " + where.str());
  }
  return first;
}

bool saved(uint32_t mask, size_t number) { return (mask >> std::min<size_t>(number, 31) & 1u) != 0; }

const IntrusivePtr<Value>& value_to_keep(const Tensor& input) {
  const IntrusivePtr<AutogradMeta>& autograd = input.autograd();
  return autograd && autograd->kept_as ? autograd->kept_as : input.value();
}

bool any_needs_gradient(std::span<const Tensor* const> inputs) {
  for (const Tensor* input : inputs) {
    if (input->requires_grad()) return true;
  }
  return false;
}

void append_to_tape(const RecordCall& call, const Inference& inference, GraphCore& graph, std::span<Tensor> outputs,
                    const SourceLine& where) {
  auto node = make_intrusive<GradNode>();
  node->op = &call.op;
  node->name = call.op.called();
  node->attributes = inference.decoded;
  node->scalars.assign(call.scalars.begin(), call.scalars.end());
  node->order = graph.next_tape_order();
  node->where = where;
  node->inputs.reserve(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = *call.inputs[i];
    node->inputs.push_back({&input.meta(),
                            saved(call.op.saved_inputs, i) ? value_to_keep(input) : IntrusivePtr<Value>(),
                            input.autograd()});
  }
  node->outputs.reserve(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorMeta* meta = &outputs[i].meta();
    node->outputs.push_back({meta, saved(call.op.saved_outputs, i) ? outputs[i].value() : IntrusivePtr<Value>()});
    if (!is_floating(meta->dtype)) continue;
    auto autograd = make_intrusive<AutogradMeta>(node, static_cast<uint32_t>(i));
    autograd->meta = meta;
    outputs[i] = Tensor(outputs[i].value(), std::move(autograd));
  }
}

void record_checked(const RecordCall& call, IntrusivePtr<RecordPayload> payload, GraphCore& graph,
                    std::span<Tensor> outputs, const SourceLine& line, const Where& where, bool converted) {
  ScratchUse use;
  CallScratch& scratch = *use;
  for (const Tensor* input : call.inputs) scratch.metas.push_back(input->value()->meta());
  const Inference& inference = graph.cache().get(
      {&call.op, call.attributes, scratch.metas, call.output_layouts, conversion_policy(graph)}, line);
  if (!inference.conversions.empty()) {
    DTORCH_CHECK(!converted, std::string(call.op.called()) + ": conversions of converted inputs");
    std::vector<const Tensor*> inputs(call.inputs.begin(), call.inputs.end());
    std::vector<Tensor> kept;
    kept.reserve(inference.conversions.size());
    for (const Conversion& conversion : inference.conversions) {
      const Tensor*& input = inputs.at(static_cast<size_t>(conversion.input));
      kept.push_back(redistribute_call(*input, conversion.layout, where));
      const Value& converted_value = *kept.back().value();
      if (converted_value.lineage()) converted_value.lineage()->inserted_for = call.op.called();
      input = &kept.back();
    }
    record_checked({call.op, call.attributes, inputs, call.scalars, call.output_layouts}, std::move(payload), graph,
                   outputs, line, where, true);
    return;
  }
  const OperatorSpec& spec = *inference.spec;
  DTORCH_CHECK(outputs.size() == spec.outputs.size(),
               std::string(call.op.called()) + ": " + std::to_string(outputs.size()) +
                   " outputs asked for, inferred are " + std::to_string(spec.outputs.size()));
  for (const Tensor* input : call.inputs) scratch.inputs.push_back(input->value()->slot());
  for (size_t i = 0; i < outputs.size(); ++i) scratch.outputs.push_back(graph.take_slot());
  graph.append(&spec, scratch.inputs, scratch.outputs, call.scalars, std::move(payload), line);
  const Origin origin{&spec, line, thread_state.has_source ? 0 : where.column()};
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] =
        Tensor(make_intrusive<Value>(IntrusivePtr<GraphCore>(&graph), scratch.outputs[i], spec.outputs[i], origin), {});
  }
  if (graph.client().explain.load(std::memory_order_relaxed)) note_call(call.inputs, outputs, origin);
  if (grad_enabled() && call.op.gradient && any_needs_gradient(call.inputs))
    append_to_tape(call, inference, graph, outputs, line);
  if (graph.client().check_replicas.load(std::memory_order_relaxed)) check_replicas(call.op, outputs, line, where);
}

}  // namespace

void record_call(const RecordCall& call, std::span<Tensor> outputs, const Where& where) {
  IntrusivePtr<RecordPayload> payload(call.payload);
  if (payload && payload->ref_count() > 1) payload->drop_ref();
  const SourceLine line = source_line(where);
  GraphCore& graph = graph_of(call, line);
  graph.check_usable();
  record_checked(call, std::move(payload), graph, outputs, line, where, false);
}

}  // namespace dtorch
