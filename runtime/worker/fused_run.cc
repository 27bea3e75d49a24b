#include "runtime/worker/fused_run.h"

#include <algorithm>
#include <exception>

#include "runtime/base/log.h"

namespace dtorch {
namespace {

// LibTorch's loops don't split what is smaller.
constexpr int64_t kSplitElements = 2048;

// Gives the stretch's values their numbers. Inputs come first, so what a call makes is known as a call until the end.
class Builder {
 public:
  Builder(const RunOfCalls& run, size_t first, size_t end) : run_(run), first_(first), end_(end) {}

  std::unique_ptr<FusedCalls> build() {
    auto result = std::make_unique<FusedCalls>();
    result_ = result.get();
    const size_t base = run_.calls[first_].first_operand;
    wanted_.assign(end_ - first_, true);
    for (size_t c = first_; c < end_; ++c) {
      const Operator& op = run_.calls[c];
      const auto operand = static_cast<uint32_t>(op.first_operand - base);
      const auto call = static_cast<uint32_t>(c - first_);
      for (uint32_t i = 0; i < op.num_inputs; ++i) add_input(operand + i, call, i);
      result_->program.members.push_back({.def = &OperatorRegistry::global().at(run_.specs[c]->local.op),
                                          .local = &run_.specs[c]->local,
                                          .inputs = std::move(read_),
                                          .num_scalars = op.num_scalars});
      read_.clear();
      const OperandId slot = at(operand + op.num_inputs);
      forget(slot);  // overwritten
      values_.set(slot, kMade | call);
    }
    number_values(base);
    return result;
  }

 private:
  static constexpr uint32_t kMade = 0x80000000u;  // and the call that made it; else an input's number
  OperandId at(uint32_t operand) const {
    return run_.operands[run_.calls[first_].first_operand - run_.calls[0].first_operand + operand];
  }

  void add_input(uint32_t operand, uint32_t call, uint32_t position) {
    const OperandId slot = at(operand) & kMaxOperand;
    uint32_t value = values_.get(slot);
    if (value == SlotMap::kNone) {
      value = static_cast<uint32_t>(result_->inputs.size());
      const LocalSpec& spec = *run_.specs[first_ + call];
      // By shape: one element of another rank isn't what a result's memory could be either.
      const bool is_single = spec.local.input_boxes[position].size != run_.specs[first_]->local.output_boxes[0].size;
      result_->inputs.push_back({.operand = operand, .call = call, .position = position});
      result_->program.inputs.push_back({spec.local.spec->inputs[position]->dtype, is_single});
      values_.set(slot, value);
    }
    read_.push_back(value);
    if ((at(operand) & kLastUse) == 0) return;
    if ((value & kMade) == 0) result_->inputs[value].dies = true;
    forget(slot);
  }

  void forget(OperandId slot) {
    const uint32_t value = values_.get(slot);
    if (value != SlotMap::kNone && (value & kMade) != 0) wanted_[value & ~kMade] = false;
    values_.erase(slot);
  }

  void number_values(size_t base) {
    FusedProgram& program = result_->program;
    program.num_elements = run_.specs[first_]->local.output_boxes[0].num_elements();
    for (FusedProgram::Member& member : program.members) {
      for (uint32_t& value : member.inputs) {
        if ((value & kMade) != 0) value = program.num_inputs() + (value & ~kMade);
      }
    }
    for (uint32_t call = 0; call < wanted_.size(); ++call) {
      if (!wanted_[call]) continue;
      const Operator& op = run_.calls[first_ + call];
      program.outputs.push_back(program.num_inputs() + call);
      result_->outputs.push_back(
          {.operand = static_cast<uint32_t>(op.first_operand - base) + op.num_inputs, .call = call});
    }
  }

  const RunOfCalls& run_;
  const size_t first_, end_;
  FusedCalls* result_ = nullptr;
  SlotMap values_;
  std::vector<uint32_t> read_;  // by the call under way
  std::vector<bool> wanted_;    // by call: its result is there when the stretch ends
};

// The device has all operands, and elements meet in the same places.
bool may_be_fused(const LocalSpec& spec, const Shape& shape) {
  if (spec.action != Action::kKernel || (spec.prepared == nullptr && !spec.may_fuse)) return false;
  if (!OperatorRegistry::global().at(spec.local.op).elementwise) return false;
  if (spec.local.output_boxes[0].size != shape) return false;
  return std::ranges::all_of(spec.local.input_boxes,
                             [&](const Box& box) { return box.size == shape || box.num_elements() == 1; });
}

}  // namespace

FusedPlan make_fused_plan(const RunOfCalls& run, const KernelMaker& maker) {
  FusedPlan plan;
  const auto add = [&](size_t first, size_t end) {
    std::unique_ptr<FusedCalls> fused;
    if (end - first > 1) {
      fused = Builder(run, first, end).build();
      try {
        fused->kernel =
            maker.stream != nullptr ? maker.stream->fuse(fused->program) : maker.backend.fuse(fused->program);
      } catch (const std::exception& refused) {
        log_debug("a run of {} calls isn't fused: {}", end - first, refused.what());  // they run one by one
      }
      if (fused->kernel == nullptr) fused.reset();
    }
    plan.stretches.push_back({static_cast<uint32_t>(end - first), std::move(fused)});
  };
  for (size_t first = 0, end = 0; first < run.calls.size(); first = end) {
    end = first + 1;
    const LocalSpec& spec = *run.specs[first];
    if (spec.local.output_boxes.size() == 1) {
      const Shape& shape = spec.local.output_boxes[0].size;
      const bool is_split = maker.threads > 1 && shape.num_elements() >= kSplitElements;
      if (!is_split && may_be_fused(spec, shape)) {
        while (end < run.calls.size() && may_be_fused(*run.specs[end], shape)) ++end;
      }
    }
    add(first, end);
  }
  return plan;
}

size_t FusedPlans::Hash::operator()(const Key& key) const {
  uint64_t hash = key.size();
  for (uint32_t word : key) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

void FusedPlans::set_key(const RunOfCalls& run) {
  key_.clear();
  numbers_.clear();
  uint32_t next = 0;
  const OperandId* operand = run.operands.data();
  for (const Operator& op : run.calls) {
    key_.push_back(op.spec);
    key_.push_back(op.num_scalars);
    for (uint32_t i = 0; i < op.num_inputs; ++i, ++operand) {
      const OperandId slot = *operand & kMaxOperand;
      uint32_t number = numbers_.get(slot);
      if (number == SlotMap::kNone) numbers_.set(slot, number = next++);
      key_.push_back(number | (*operand & kLastUse));
    }
    // A result is a new value, whichever slot was free.
    for (uint32_t i = 0; i < op.num_outputs; ++i, ++operand) numbers_.set(*operand, next++);
  }
}

FusedPlans::PlanPtr FusedPlans::find_or_make(const RunOfCalls& run, const KernelMaker& maker) {
  set_key(run);
  const auto found = plans_.find(key_);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  return plans_.emplace(key_, std::make_shared<FusedPlan>(make_fused_plan(run, maker))).first->second;
}

}  // namespace dtorch
