#include "runtime/client/explain.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "mesh/redistribute_plan.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/lineage.h"

namespace dtorch {
namespace {

const OperatorDef& operator_of(const Origin& origin) { return OperatorRegistry::global().at(origin.spec->op); }

bool is_redistribute(const Origin& origin) { return operator_of(origin).lowering == Lowering::kTransfer; }

struct Costs {
  int64_t bytes = 0;
  int64_t num_moves = 0;  // redistributions that move data
  int64_t peak = 0;
};

// The plan of a redistribute, a step a line, and its costs.
std::string plan_text(const OperatorSpec& spec, const DeviceBinding& binding, Costs& costs) {
  const RedistributePlan plan = make_redistribute_plan(spec.inputs.at(0), spec.outputs.at(0));
  if (plan.kind == PlanKind::kNothing) return "       nothing to do\n";
  if (plan.kind == PlanKind::kLocal) return "       local: no data moves\n";
  costs.bytes += plan.bytes_moved(binding);
  costs.peak = std::max(costs.peak, plan.peak_bytes(binding));
  ++costs.num_moves;
  std::istringstream lines(plan.explain(binding));
  std::string text;
  std::string line;
  std::getline(lines, line);  // the layouts, which stand above
  while (std::getline(lines, line)) text += "     " + line + "\n";
  return text;
}

class Explanation {
 public:
  explicit Explanation(const DeviceBinding& binding) : binding_(binding) {}

  std::string of_lineage(const Lineage& last) {
    collect(last);
    std::ranges::sort(calls_, {}, &Lineage::number);
    std::string text;
    for (const Lineage* call : calls_) {
      for (const Lineage::Input& input : call->inputs) text += leaf_line(input);
      text += call_lines(*call);
    }
    return text;
  }

  // Of a tensor whose calls weren't noted.
  std::string of_origin(const Origin& origin) {
    std::string inputs;
    std::string leaves;
    for (size_t i = 0; i < origin.spec->inputs.size(); ++i) {
      ++num_names_;
      inputs += (i == 0 ? "" : ", ") + name(num_names_);
      leaves += "  " + name(num_names_) + " = an input: " + origin.spec->inputs[i]->str() + "\n";
    }
    return leaves + "  " + name(++num_names_) + " = " + line_of(origin, inputs, "");
  }

  const Costs& costs() const { return costs_; }

 private:
  using LeafKey = std::tuple<const char*, uint32_t, uint32_t, const TensorMeta*>;
  static LeafKey key_of(const Lineage::Input& input) {
    return {input.origin.where.file, input.origin.where.line, input.origin.column, input.meta};
  }
  static std::string name(size_t number) { return "%" + std::to_string(number); }

  void collect(const Lineage& last) {
    std::vector<const Lineage*> open{&last};
    while (!open.empty()) {
      const Lineage* call = open.back();
      open.pop_back();
      if (!seen_.emplace(call, 0).second) continue;
      calls_.push_back(call);
      for (const Lineage::Input& input : call->inputs) {
        if (input.lineage) open.push_back(input.lineage.get());
      }
    }
  }

  // Inputs whose own call isn't shown are named by where they come from; one and the same several times is named once.
  std::string leaf_line(const Lineage::Input& input) {
    if (input.lineage) return "";
    const auto [at, is_new] = leaves_.try_emplace(key_of(input), 0);
    if (!is_new) return "";
    at->second = ++num_names_;
    return "  " + name(at->second) + " = " + operator_of(input.origin).called() + ": " + input.meta->str() +
           "   (made before, " + input.origin.where.str() + ")\n";
  }

  std::string name_of(const Lineage::Input& input) const {
    return name(input.lineage ? seen_.at(input.lineage.get()) : leaves_.at(key_of(input)));
  }

  // A redistribute at the place of another operator's call was made by that operator.
  std::string inserted_for(const Lineage& call) const {
    if (call.inserted_for != nullptr) return call.inserted_for;
    if (!is_redistribute(call.origin)) return "";
    for (const Lineage* other : calls_) {
      if (!is_redistribute(other->origin) && other->origin.same_place(call.origin))
        return operator_of(other->origin).called();
    }
    return "";
  }

  std::string call_lines(const Lineage& call) {
    std::string inputs;
    for (const Lineage::Input& input : call.inputs) inputs += (inputs.empty() ? "" : ", ") + name_of(input);
    seen_[&call] = ++num_names_;
    return "  " + name(num_names_) + " = " + line_of(call.origin, inputs, inserted_for(call));
  }

  std::string line_of(const Origin& origin, const std::string& inputs, const std::string& inserted) {
    std::string text = std::string(operator_of(origin).called()) + "(" + inputs + "): ";
    for (size_t i = 0; i < origin.spec->outputs.size(); ++i) {
      text += (i == 0 ? "" : "; ") + origin.spec->outputs[i]->str();
    }
    text += "   " + origin.where.str();
    if (!inserted.empty()) text += ", inserted for " + inserted;
    return text + "\n" + (is_redistribute(origin) ? plan_text(*origin.spec, binding_, costs_) : "");
  }

  const DeviceBinding& binding_;
  std::vector<const Lineage*> calls_;
  std::unordered_map<const Lineage*, size_t> seen_;  // its number in the text, once printed
  std::map<LeafKey, size_t> leaves_;
  size_t num_names_ = 0;
  Costs costs_;
};

}  // namespace

std::string explain(const Tensor& tensor) {
  const Value* value = tensor.value().get();
  if (value == nullptr) return tensor.str() + "\n";
  Explanation explanation(value->graph().client().runtime->binding());
  std::string text = tensor.str() + "\n";
  if (value->lineage()) {
    text += explanation.of_lineage(*value->lineage());
  } else {
    text += explanation.of_origin(value->origin());
    text += "  what led to it wasn't noted: set_explain(true) before, or --explain\n";
  }
  const Costs& costs = explanation.costs();
  if (costs.num_moves == 0) return text + "no data moves between devices\n";
  return text + std::to_string(costs.num_moves) +
         (costs.num_moves == 1 ? " redistribution moves " : " redistributions move ") + std::to_string(costs.bytes) +
         " bytes between devices; the largest holds at most " + std::to_string(costs.peak) + " bytes a device\n";
}

}  // namespace dtorch
