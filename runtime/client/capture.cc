#include "runtime/client/capture.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/client/graph_core.h"
#include "runtime/client/record_codec.h"
#include "runtime/client/thread_state.h"

namespace dtorch {

namespace {

// Where an input comes from: the n-th value made by the function, or (with the top bit) the n-th value from outside.
using Source = uint32_t;
constexpr Source kOutside = 0x80000000u;

struct CapturedCall {
  const OperatorSpec* spec = nullptr;
  SourceLine where;
  std::vector<Source> inputs;
};

const OperatorDef& def_of(const OperatorSpec& spec) { return OperatorRegistry::global().at(spec.op); }

std::string text_of(const CapturedCall& call) {
  return std::string(def_of(*call.spec).called()) + " at " + call.where.str();
}

std::string text_of(Source source) {
  return (source & kOutside) != 0 ? "value " + std::to_string(source & ~kOutside) + " from outside"
                                  : "value " + std::to_string(source) + " of its own";
}

// While it lives the observer is told of the Graph's records on this thread.
class ObserverScope {
 public:
  ObserverScope(RecordObserver& observer, const GraphCore& graph) {
    thread_state.observer = &observer;
    thread_state.observed = &graph;
  }
  ~ObserverScope() { thread_state.observer = nullptr; }
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;
};

// What differs between two calls of one operator; "" when nothing does.
std::string difference(const CapturedCall& then, const CapturedCall& now) {
  const OperatorSpec& a = *then.spec;
  const OperatorSpec& b = *now.spec;
  if (a.attributes != b.attributes) {
    const AttributeCodec& codec = def_of(a).attributes;
    return "its attributes were (" + codec.print(a.attributes) + ") then and are (" + codec.print(b.attributes) + ")";
  }
  if (a.inputs.size() != b.inputs.size())
    return "it had " + std::to_string(a.inputs.size()) + " inputs then and has " + std::to_string(b.inputs.size());
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    if (a.inputs[i] != b.inputs[i])
      return "its input " + std::to_string(i) + " was " + a.inputs[i]->str() + " then and is " + b.inputs[i]->str();
  }
  for (size_t i = 0; i < a.outputs.size() && i < b.outputs.size(); ++i) {
    if (a.outputs[i] != b.outputs[i])
      return "its output " + std::to_string(i) + " was " + a.outputs[i]->str() + " then and is " + b.outputs[i]->str();
  }
  for (size_t i = 0; i < then.inputs.size(); ++i) {
    if (then.inputs[i] != now.inputs[i])
      return "its input " + std::to_string(i) + " was " + text_of(then.inputs[i]) + " then and is " +
             text_of(now.inputs[i]);
  }
  return "";
}

}  // namespace

struct CapturedFunction::State final : RecordObserver {
  explicit State(std::function<void()> user_function) : function(std::move(user_function)), graph(&current_graph()) {}

  void before_record(const RecordContent& record) override;
  void check(const CapturedCall& now) const;
  void run();

  std::function<void()> function;
  IntrusivePtr<GraphCore> graph;
  std::vector<CapturedCall> calls;  // of the first run
  bool captured = false;
  size_t next = 0;  // call of the run under way
  std::unordered_map<OperandId, Source> sources;
  uint32_t num_made = 0, num_outside = 0;
};

void CapturedFunction::State::before_record(const RecordContent& record) {
  if (record.spec == nullptr) return;
  CapturedCall now{record.spec, record.where, {}};
  for (OperandId slot : record.inputs) {
    const auto [at, is_new] = sources.try_emplace(slot, kOutside | num_outside);
    num_outside += is_new;
    now.inputs.push_back(at->second);
  }
  if (captured) {
    check(now);
  } else {
    calls.push_back(std::move(now));
  }
  ++next;
  for (OperandId slot : record.outputs) sources[slot] = num_made++;
}

void CapturedFunction::State::check(const CapturedCall& now) const {
  const std::string number = "[capture] call " + std::to_string(next);
  const std::string rule = "; a captured function must record the same calls every time";
  if (next >= calls.size()) {
    throw UserError(number + " is " + text_of(now) + ", and the first run had " + std::to_string(calls.size()) +
                    " calls" + rule);
  }
  const CapturedCall& then = calls[next];
  if (then.spec->op != now.spec->op || then.where.line != now.where.line || then.where.file != now.where.file)
    throw UserError(number + " was " + text_of(then) + " in the first run and is " + text_of(now) + rule);
  if (std::string what = difference(then, now); !what.empty())
    throw UserError(number + ", " + text_of(now) + ", isn't what it was in the first run: " + what + rule);
}

void CapturedFunction::State::run() {
  next = 0;
  num_made = num_outside = 0;
  sources.clear();
  if (!captured) calls.clear();
  graph->flush();
  {
    const ObserverScope scope(*this, *graph);
    function();
  }
  graph->flush();
}

CapturedFunction::CapturedFunction(std::function<void()> function)
    : state_(std::make_shared<State>(std::move(function))) {}

void CapturedFunction::operator()(Where where) {
  State& state = *state_;
  if (thread_state.observer != nullptr) {
    throw UserError("[capture] a captured function is called by another one; capture the outer one only\n  called at " +
                    source_line(where).str());
  }
  state.run();
  if (state.next < state.calls.size()) {
    throw UserError("[capture] the function recorded " + std::to_string(state.next) + " calls, the first run had " +
                    std::to_string(state.calls.size()) + "; the next one was " + text_of(state.calls[state.next]) +
                    called_at(source_line(where)));
  }
  state.captured = true;
}

size_t CapturedFunction::num_calls() const { return state_->captured ? state_->calls.size() : 0; }

}  // namespace dtorch
