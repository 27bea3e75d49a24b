#include "runtime/worker/device_graph.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/graph/fused_runs.h"
#include "runtime/worker/lowered_spec.h"

namespace dtorch {
namespace {

enum class Kind : uint8_t { kNeutral, kKernel, kNever };

class Finder {
 public:
  Finder(const TemplateBody& body, const std::vector<const LocalSpec*>& specs, const VaryingScalars& varying,
         const std::vector<uint32_t>& refused)
      : body_(body), specs_(specs), varying_(varying), refused_(refused) {}

  std::vector<GraphStretch> find() const {
    std::vector<GraphStretch> stretches;
    uint32_t first = 0, num_kernels = 0;
    const auto close = [&](uint32_t end) {
      if (num_kernels >= static_cast<uint32_t>(DeviceGraphs::kMinKernels)) stretches.push_back(stretch_of(first, end));
      num_kernels = 0;
    };
    const std::span<const Operator> operators = body_.calls().operators;
    for (uint32_t call = 0, next = 0; call < operators.size(); call = next) {
      next = call + static_cast<uint32_t>(fused_run_length(operators, call));
      Kind kind = kind_of(call);
      // A run is one kernel, so all of it is in a stretch or none.
      for (uint32_t other = call + 1; other < next; ++other) {
        if (kind_of(other) == Kind::kNever) kind = Kind::kNever;
      }
      if (kind == Kind::kNever) {
        close(call);
      } else if (kind == Kind::kKernel && num_kernels++ == 0) {
        first = call;
      }
    }
    close(static_cast<uint32_t>(operators.size()));
    return stretches;
  }

 private:
  // A number that changes is part of what was captured.
  bool has_varying_scalar(uint32_t call) const {
    return !varying_.range(body_.scalars_before(call), body_.scalars_before(call + 1)).empty();
  }

  Kind kind_of(uint32_t call) const {
    const Operator& op = body_.calls().operators[call];
    if (!op.is_call()) return Kind::kNeutral;
    const LocalSpec& spec = *specs_[call];
    if (spec.action == Action::kSkip) return Kind::kNeutral;
    if (spec.action == Action::kMove || spec.action == Action::kRead) return Kind::kNever;
    if (spec.uses_feed || spec.has_effect || spec.ragged_inputs != 0 || spec.ragged_outputs != 0) return Kind::kNever;
    if (has_varying_scalar(call) || std::ranges::find(refused_, call) != refused_.end()) return Kind::kNever;
    return Kind::kKernel;
  }

  GraphStretch stretch_of(uint32_t first, uint32_t end) const {
    GraphStretch stretch;
    stretch.first = first;
    stretch.end = end;
    std::unordered_map<OperandId, size_t> inputs;
    std::vector<OperandId> born;
    for (uint32_t call = first; call < end; ++call) {
      const Operator& op = body_.calls().operators[call];
      const bool is_skipped = op.is_call() && specs_[call]->action == Action::kSkip;
      const std::span<const OperandId> operands = body_.calls().inputs(op);
      for (uint32_t position = 0; position < operands.size(); ++position) {
        const OperandId name = operands[position] & kMaxOperand;
        if (!body_.is_live_in(name) && body_.born_in(name) >= first) continue;
        const auto [at, is_new] = inputs.emplace(name, stretch.inputs.size());
        if (is_new) stretch.inputs.emplace_back().name = name;
        GraphStretch::Input& input = stretch.inputs[at->second];
        input.dies |= op.spec == kReleaseSpec || (operands[position] & kLastUse) != 0;
        if (op.spec == kReleaseSpec || is_skipped) continue;
        input.is_read = true;
        if (input.has_reader || !op.is_call()) continue;
        input.has_reader = true;
        input.call = call;
        input.position = position;
      }
      // What a call that isn't the device's makes isn't here.
      if (is_skipped) continue;
      for (OperandId name : body_.calls().outputs(op)) born.push_back(name);
    }
    for (OperandId name : born) {
      if (body_.alive_before(name, end)) stretch.outputs.push_back(name);
    }
    return stretch;
  }

  const TemplateBody& body_;
  const std::vector<const LocalSpec*>& specs_;
  const VaryingScalars& varying_;
  const std::vector<uint32_t>& refused_;
};

}  // namespace

void DeviceGraphs::prepare(const TemplateBody& body, const std::vector<const LocalSpec*>& specs,
                           const VaryingScalars& varying) {
  if (is_current_ && num_varying_ == varying.all().size()) return;
  is_current_ = true;
  num_varying_ = varying.all().size();
  std::vector<GraphStretch> found;
  if (refused_.size() <= kMaxRefused) found = Finder(body, specs, varying, refused_).find();
  // What is captured of stretches that are the same stays.
  for (GraphStretch& stretch : found) {
    const auto same = [&](const GraphStretch& old) { return old.first == stretch.first && old.end == stretch.end; };
    const auto old = std::ranges::find_if(stretches_, same);
    if (old != stretches_.end()) stretch = std::move(*old);
  }
  stretches_ = std::move(found);
  stretch_at_.assign(body.num_calls(), 0);
  for (size_t i = 0; i < stretches_.size(); ++i) stretch_at_[stretches_[i].first] = static_cast<uint32_t>(i + 1);
}

void DeviceGraphs::refuse(uint32_t call) {
  refused_.push_back(call);
  is_current_ = false;
}

}  // namespace dtorch
