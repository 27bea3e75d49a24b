#include "runtime/client/record.h"

#include <algorithm>
#include <array>

#include "runtime/base/small_array.h"
#include "runtime/base/trace_span.h"
#include "runtime/client/check_replicas.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/lineage.h"
#include "runtime/client/named_operator.h"
#include "runtime/client/record_usual.h"
#include "runtime/client/redistribute_call.h"
#include "runtime/client/thread_state.h"

namespace dtorch {
namespace {

[[gnu::cold]] [[noreturn]] void throw_undefined_input(const RecordCall& call, size_t i, const SourceLine& where) {
  throw UserError(std::string("[") + call.op.called() + "] input " + std::to_string(i) +
                  " is undefined (a default-constructed Tensor)\n" + "  called at " + where.str());
}

[[gnu::cold]] [[noreturn]] void throw_other_graph(const RecordCall& call, size_t i, const GraphCore& first,
                                                  const GraphCore& other, const SourceLine& where) {
  throw GraphError(std::string("[") + call.op.called() + "] inputs are of different Graphs: input 0 of graph " +
                   std::to_string(first.id()) + ", input " + std::to_string(i) + " of graph " +
                   std::to_string(other.id()) +
                   "; values pass between Graphs by to_host() and from_host()\n  called at " + where.str());
}

GraphCore& graph_of(const RecordCall& call, const SourceLine& where) {
  if (call.inputs.empty()) return current_graph();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i]->defined()) throw_undefined_input(call, i, where);
  }
  GraphCore& first = call.inputs[0]->value()->graph();
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const GraphCore& other = call.inputs[i]->value()->graph();
    if (&other != &first) throw_other_graph(call, i, first, other, where);
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

// Not inlined: calls without gradients are the ones that must cost little.
[[gnu::noinline]] void append_to_tape(const RecordCall& call, const Inference& inference, GraphCore& graph,
                                      std::span<Tensor> outputs, const SourceLine& where) {
  auto node = make_intrusive<GradNode>();
  node->op = &call.op;
  node->name = call.op.called();
  node->attributes = inference.decoded;
  node->scalars.set_size(call.scalars.size());
  std::ranges::copy(call.scalars, node->scalars.begin());
  node->order = graph.next_tape_order();
  node->where = where;
  node->inputs.set_size(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = *call.inputs[i];
    GradNode::Input& entry = node->inputs[i];
    entry.meta = input.value()->meta();
    if (saved(call.op.saved_inputs, i)) entry.value = value_to_keep(input);
    if (input.autograd()) entry.autograd = input.autograd();
  }
  node->outputs.set_size(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorMeta* meta = outputs[i].value()->meta();
    node->outputs[i].meta = meta;
    if (saved(call.op.saved_outputs, i)) node->outputs[i].value = outputs[i].value();
    if (!is_floating(meta->dtype)) continue;
    auto autograd = make_intrusive<AutogradMeta>(node, static_cast<uint32_t>(i));
    autograd->meta = meta;
    outputs[i] = Tensor(outputs[i].value(), std::move(autograd));
  }
}

// What follows from an inference without conversions: slots, the record, the results, the tape.
void record_inferred(const RecordCall& call, const Inference& inference, IntrusivePtr<RecordPayload> payload,
                     GraphCore& graph, std::span<Tensor> outputs, const SourceLine& line, const Where& where) {
  const OperatorSpec& spec = *inference.spec;
  const size_t num_inputs = call.inputs.size(), num_outputs = outputs.size();
  DTORCH_CHECK(num_outputs == spec.outputs.size(), std::string(call.op.called()) + ": " + std::to_string(num_outputs) +
                                                       " outputs asked for, inferred are " +
                                                       std::to_string(spec.outputs.size()));
  SmallArray<OperandId, 16> slots(num_inputs + num_outputs);
  for (size_t i = 0; i < num_inputs; ++i) slots[i] = call.inputs[i]->value()->slot();
  for (size_t i = 0; i < num_outputs; ++i) slots[num_inputs + i] = graph.take_slot();
  graph.append(&spec, slots.all().first(num_inputs), slots.all().subspan(num_inputs), call.scalars, std::move(payload),
               line);
  const Origin origin{&spec, line, thread_state.has_source ? 0 : where.column()};
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs[i] = Tensor(
        make_intrusive<Value>(IntrusivePtr<GraphCore>(&graph), slots[num_inputs + i], spec.outputs[i], origin), {});
  }
  if (graph.client().explain.load(std::memory_order_relaxed)) note_call(call.inputs, outputs, origin);
  if (thread_state.grad_enabled && call.op.gradient && any_needs_gradient(call.inputs))
    append_to_tape(call, inference, graph, outputs, line);
  if (graph.client().check_replicas.load(std::memory_order_relaxed)) check_replicas(call.op, outputs, line, where);
}

// The usual call: few inputs, short attributes, one output, nothing beside them, and seen before. All at one go, so
// that it costs little; false, and nothing has happened, when it isn't one.
class UsualCall {
 public:
  static bool fits(const RecordCall& call, size_t num_outputs) {
    const size_t num_inputs = call.inputs.size();
    return num_inputs - 1 < UsualKey::kMaxInputs && num_outputs == 1 && !call.payload && call.scalars.empty() &&
           call.output_layouts.empty() && call.attributes.size() <= AttributeWords::kMaxBytes;
  }
  // Of a call that fits. is_known() false: an input is undefined, or they are of several Graphs, or it wasn't seen yet.
  [[gnu::always_inline]] explicit UsualCall(const RecordCall& call) {
    switch (call.inputs.size()) {
      case 1:
        if (!take_inputs<1>(call.inputs)) return;
        break;
      case 2:
        if (!take_inputs<2>(call.inputs)) return;
        break;
      default:
        if (!take_inputs<UsualKey::kMaxInputs>(call.inputs)) return;
    }
    key_.set_call(call.op, call.attributes, conversion_policy(*graph_));
    is_complete_ = true;
  }
  const UsualKey& key() const { return key_; }
  bool is_complete() const { return is_complete_; }

  // The call's value, appended to the stream; null, and nothing has happened: it wasn't seen yet.
  [[gnu::always_inline]] IntrusivePtr<Value> append(const SourceLine& line, const Where& where) {
    graph_->check_usable();
    inference_ = graph_->cache().find(key_);
    if (!inference_) return {};
    const OperatorSpec& spec = *inference_->spec;
    const OperandId slot = graph_->take_slot();
    operands_[num_inputs_] = slot;
    const bool is_observed = thread_state.observer != nullptr;  // append() tells it
    if (is_observed || !graph_->append_small(&spec, operands_, num_inputs_, 1, line)) {
      graph_->append(&spec, {operands_.data(), num_inputs_}, {&slot, 1}, {}, {}, line);
    }
    return make_intrusive<Value>(IntrusivePtr<GraphCore>(graph_), slot, spec.outputs[0],
                                 Origin{&spec, line, thread_state.has_source ? 0 : where.column()});
  }
  // What else there is to do with a call that was appended.
  void finish(const RecordCall& call, Tensor& output, const SourceLine& line, const Where& where) const {
    if (graph_->client().explain.load(std::memory_order_relaxed)) {
      note_call(call.inputs, {&output, 1}, output.value()->origin());
    }
    if (needs_gradient_ && thread_state.grad_enabled && call.op.gradient) {
      append_to_tape(call, *inference_, *graph_, {&output, 1}, line);
    }
    if (graph_->client().check_replicas.load(std::memory_order_relaxed)) {
      check_replicas(call.op, {&output, 1}, line, where);
    }
  }

 private:
  // False: one is undefined, or they are of several Graphs.
  template <size_t kNumInputs, class Inputs>
  [[gnu::always_inline]] bool take_inputs(const Inputs& inputs) {
    std::array<const Value*, kNumInputs> values;
    for (size_t i = 0; i < kNumInputs; ++i) {
      values[i] = inputs[i]->value().get();
      if (!values[i]) return false;
      needs_gradient_ |= inputs[i]->requires_grad();
    }
    graph_ = &values[0]->graph();
    for (size_t i = 0; i < kNumInputs; ++i) {
      if (&values[i]->graph() != graph_) return false;
      key_.set_input(i, values[i]->meta());
      operands_[i] = values[i]->slot();
    }
    num_inputs_ = kNumInputs;
    return true;
  }

  GraphCore* graph_ = nullptr;
  size_t num_inputs_ = 0;
  bool needs_gradient_ = false;
  bool is_complete_ = false;
  const Inference* inference_ = nullptr;
  std::array<OperandId, kInlineOperands> operands_{};
  UsualKey key_;
};

// Any call. Not inlined: the usual ones don't come here.
[[gnu::noinline]] void record_any(const RecordCall& call, IntrusivePtr<RecordPayload> payload, GraphCore& graph,
                                  std::span<Tensor> outputs, const SourceLine& line, const Where& where,
                                  bool converted) {
  SmallArray<const TensorMeta*, 8> metas(call.inputs.size());
  for (size_t i = 0; i < call.inputs.size(); ++i) metas[i] = call.inputs[i]->value()->meta();
  const ConversionPolicy policy = conversion_policy(graph);
  const Inference& inference =
      graph.cache().get({&call.op, call.attributes, metas.all(), call.output_layouts, policy}, line);
  if (inference.conversions.empty()) {
    if (UsualCall::fits(call, outputs.size())) graph.cache().remember(UsualCall(call).key(), inference);
    return record_inferred(call, inference, std::move(payload), graph, outputs, line, where);
  }
  DTORCH_CHECK(!converted, std::string(call.op.called()) + ": conversions of converted inputs");
  const std::vector<Conversion> conversions = inference.conversions;  // which may go when the next calls are inferred
  std::vector<const Tensor*> inputs(call.inputs.begin(), call.inputs.end());
  std::vector<Tensor> kept;
  kept.reserve(conversions.size());
  for (const Conversion& conversion : conversions) {
    const Tensor*& input = inputs.at(static_cast<size_t>(conversion.input));
    kept.push_back(redistribute_call(*input, conversion.layout, where));
    const Value& converted_value = *kept.back().value();
    if (converted_value.lineage()) converted_value.lineage()->inserted_for = call.op.called();
    input = &kept.back();
  }
  record_any({call.op, call.attributes, inputs, call.scalars, call.output_layouts}, std::move(payload), graph, outputs,
             line, where, true);
}

// Out of line, so that what it calls once is inlined there.
[[gnu::noinline]] void record_one(const RecordCall& call, std::span<Tensor> outputs, const SourceLine& line,
                                  const Where& where) {
  if (UsualCall::fits(call, outputs.size())) {
    UsualCall usual(call);
    if (usual.is_complete()) {
      if (IntrusivePtr<Value> value = usual.append(line, where)) {
        outputs[0] = Tensor(std::move(value), {});
        return usual.finish(call, outputs[0], line, where);
      }
    }
  }
  IntrusivePtr<RecordPayload> payload(call.payload);
  if (payload && payload->ref_count() > 1) payload->drop_ref();
  GraphCore& graph = graph_of(call, line);
  graph.check_usable();
  record_any(call, std::move(payload), graph, outputs, line, where, false);
}

[[gnu::noinline]] void record_traced(const RecordCall& call, std::span<Tensor> outputs, const SourceLine& line,
                                     const Where& where) {
  const TraceSpan span(call.op.called(), line);
  record_one(call, outputs, line, where);
}

[[gnu::noinline]] void append_two(GraphCore& graph, const OperatorSpec& spec, OperandId a, OperandId b,
                                  OperandId output, const SourceLine& line) {
  graph.append(&spec, std::array{a, b}, {&output, 1}, {}, {}, line);
}

// What else there is to do with a call that was appended.
[[gnu::noinline]] Tensor finish_two(const OperatorDef& op, const FixedAttributes& attributes, const Tensor& a,
                                    const Tensor& b, const Inference& inference, IntrusivePtr<Value> made,
                                    const Where& where) {
  Tensor output(std::move(made), {});
  const std::array inputs{&a, &b};
  const RecordCall call{op, attributes.bytes(), inputs};
  const Value& value = *output.value();
  const SourceLine line = value.origin().where;
  GraphCore& graph = value.graph();
  if (graph.client().explain.load(std::memory_order_relaxed)) note_call(inputs, {&output, 1}, value.origin());
  if (thread_state.grad_enabled && op.gradient && any_needs_gradient(inputs))
    append_to_tape(call, inference, graph, {&output, 1}, line);
  if (graph.client().check_replicas.load(std::memory_order_relaxed)) check_replicas(op, {&output, 1}, line, where);
  return output;
}

[[gnu::noinline]] Tensor record_two_in_full(const OperatorDef& op, const FixedAttributes& attributes, const Tensor& a,
                                            const Tensor& b, const Where& where) {
  Tensor output;
  record_call({op, attributes.bytes(), std::array{&a, &b}}, {&output, 1}, where);
  return output;
}

}  // namespace

// append_to_tape() for a call of two tensors: its result with what autograd knows of it.
[[gnu::noinline]] Tensor taped_two(const OperatorDef& op, const Tensor& a, const Tensor& b, const Inference& inference,
                                   IntrusivePtr<Value> value) {
  auto node = make_intrusive<GradNode>();
  node->op = &op;
  node->name = op.called();
  node->attributes = inference.decoded;
  node->order = value->graph().next_tape_order();
  node->where = value->origin().where;
  node->inputs.set_size(2);
  GradNode::Input* const inputs = node->inputs.data();
  inputs[0].meta = a.value()->meta();
  inputs[1].meta = b.value()->meta();
  if (saved(op.saved_inputs, 0)) inputs[0].value = value_to_keep(a);
  if (saved(op.saved_inputs, 1)) inputs[1].value = value_to_keep(b);
  if (a.autograd()) inputs[0].autograd = a.autograd();
  if (b.autograd()) inputs[1].autograd = b.autograd();
  node->outputs.set_size(1);
  GradNode::Output& output = *node->outputs.data();
  const TensorMeta* const meta = value->meta();
  output.meta = meta;
  if (saved(op.saved_outputs, 0)) output.value = value;
  if (!is_floating(meta->dtype)) return Tensor(std::move(value), {});
  auto autograd = make_intrusive<AutogradMeta>(std::move(node), 0);
  autograd->meta = meta;
  return Tensor(std::move(value), std::move(autograd));
}

// Everything in one function, so that nothing but the key lies in memory on the way. (flatten: with what it calls.)
[[gnu::flatten]] Tensor record_two(const OperatorDef& op, const FixedAttributes& attributes, const Tensor& a,
                                   const Tensor& b, const Where& where) {
  const Value *const x = a.value().get(), *const y = b.value().get();
  const ThreadState& state = thread_state;
  if (!x || !y || &x->graph() != &y->graph() || thread_span_log != nullptr || state.observer != nullptr) [[unlikely]]
    return record_two_in_full(op, attributes, a, b, where);
  GraphCore& graph = x->graph();
  graph.check_usable();
  UsualKey key;
  key.set_input(0, x->meta());
  key.set_input(1, y->meta());
  key.set_call(op, attributes.words(), attributes.num_bytes(), conversion_policy(graph));
  const Inference* const inference = graph.cache().find(key);
  if (!inference) [[unlikely]]
    return record_two_in_full(op, attributes, a, b, where);
  const OperatorSpec& spec = *inference->spec;
  const SourceLine line = state.has_source ? state.source : SourceLine::from(where);
  const uint32_t column = state.has_source ? 0 : where.column();
  const OperandId slot = graph.take_slot();
  if (!graph.append_small(&spec, {x->slot(), y->slot(), slot}, 2, 1, line)) [[unlikely]]
    append_two(graph, spec, x->slot(), y->slot(), slot, line);
  auto value =
      make_intrusive<Value>(IntrusivePtr<GraphCore>(&graph), slot, spec.outputs[0], Origin{&spec, line, column});
  const ClientShared& client = graph.client();
  const bool has_tape = (a.requires_grad() || b.requires_grad()) && state.grad_enabled && op.gradient;
  if (client.explain.load(std::memory_order_relaxed) || client.check_replicas.load(std::memory_order_relaxed))
      [[unlikely]]
    return finish_two(op, attributes, a, b, *inference, std::move(value), where);
  if (has_tape) return taped_two(op, a, b, *inference, std::move(value));
  return Tensor(std::move(value), {});
}

void record_call(const RecordCall& call, std::span<Tensor> outputs, const Where& where) {
  const SourceLine line = source_line(where);
  if (thread_span_log != nullptr) [[unlikely]]
    return record_traced(call, outputs, line, where);
  record_one(call, outputs, line, where);
}

}  // namespace dtorch
