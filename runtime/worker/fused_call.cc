// The way of a run of elementwise operators through its fused kernel (fused_run.h). Whatever doesn't go the usual way
// (a poisoned or missing input, memory that is short, a number that a member refuses) is left to the calls themselves,
// run one by one, so that failures, what they poison and what they say are the same.
#include <algorithm>

#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/prepared_check.h"

namespace dtorch {
namespace {

constexpr size_t kScratchAlignment = 64;

std::byte* aligned(std::vector<std::byte>& memory, size_t bytes) {
  if (memory.size() < bytes + kScratchAlignment) memory.resize(bytes + kScratchAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
}

}  // namespace

void KernelStream::execute_run(Call& call) {
  const uint32_t first = call.op_index;
  const auto num_calls = static_cast<uint32_t>(fused_run_length(call.list.operators, first));
  FusedPlans::PlanPtr plan = call.list.plans ? call.list.plans[first] : nullptr;
  if (plan == nullptr) plan = plan_of(call, num_calls);
  if (call.list.plans) call.list.plans[first] = plan;
  const bool observed = observer_.observes();
  uint32_t at = first;
  for (const FusedPlan::Stretch& stretch : plan->stretches) {
    const uint32_t end = at + stretch.num_calls;
    call.go_to(at);
    position_.at(call.number());
    if (observed) observer_.begin();
    if (stretch.fused && run_fused(call, *stretch.fused)) {
      if (observed) observe_fused(call, *stretch.fused);
      at = end;
      continue;
    }
    for (; at < end; ++at) {
      call.go_to(at);
      position_.at(call.number());
      observed ? execute_observed(call) : execute_call(call);
    }
  }
  call.op_index = at;
}

FusedPlans::PlanPtr KernelStream::plan_of(const Call& call, size_t num_calls) {
  const std::span<const Operator> calls = call.list.operators.subspan(call.op_index, num_calls);
  std::vector<const LocalSpec*> specs;
  for (size_t i = 0; i < num_calls; ++i) specs.push_back(call.spec_of(call.op_index + i));
  const Operator& last = calls.back();
  const size_t first_operand = calls.front().first_operand;
  const size_t num_operands = size_t{last.first_operand} + last.num_inputs + last.num_outputs - first_operand;
  const std::span<const OperandId> operands(call.list.graph.operands.data() + first_operand, num_operands);
  DeviceStream* const stream = queue_ ? &device_stream() : nullptr;
  const int32_t threads = queue_ ? 1 : node_->config.threads_per_device;
  return call.list.fused.find_or_make({calls, operands, specs}, {backend_, stream, threads});
}

void KernelStream::observe_fused(const Call& first, const FusedCalls& fused) {
  std::vector<const LocalSpec*> calls, outputs;
  for (size_t i = 0; i < fused.program.members.size(); ++i) calls.push_back(first.spec_of(first.op_index + i));
  for (const FusedCalls::Output& output : fused.outputs) outputs.push_back(calls[output.call]);
  observer_.end_run({first.run.piece.sequence, first.number()}, first.run.piece.graph, calls, outputs);
}

bool KernelStream::run_fused(const Call& first, FusedCalls& fused) {
  if (!take_fused_inputs(first, fused) || aborting()) return false;
  const Operator& last = first.op[fused.program.members.size() - 1];
  const std::span<const Scalar> scalars(first.list.scalars + first.op->first_scalar,
                                        last.first_scalar + last.num_scalars - first.op->first_scalar);
  std::vector<NativeTensor> expected;
  std::byte* scratch = nullptr;
  try {
    fused.kernel->set_scalars(scalars);
    if (check_prepared() && !queue_) [[unlikely]]
      expected = results_one_by_one(first, fused, scalars);
    if (queue_) device_stream().mark({first.run.piece.sequence, first.number()});
    scratch = aligned(scratch_, fused.kernel->scratch_bytes());
    take_fused_outputs(first, fused);
  } catch (...) {
    give_back_fused_outputs();
    return false;  // the call that fails will say it
  }
  PoisonPtr poison;
  try {
    fused.kernel->run(fused_inputs_, fused_results_, scratch);
    ++kernels_run_;
  } catch (...) {
    if (std::ranges::none_of(fused_outputs_, [](const FusedOutput& output) { return output.overwritten != nullptr; })) {
      give_back_fused_outputs();
      return false;
    }
    Call at = first;  // an input is gone, so they can't be run again
    at.go_to(first.op_index + static_cast<uint32_t>(fused.program.members.size()) - 1);
    poison = fail(at, std::current_exception());
  }
  finish_fused(first, fused, poison, expected);
  return true;
}

bool KernelStream::take_fused_inputs(const Call& first, const FusedCalls& fused) {
  const OperandId* ids = first.inputs().data();
  fused_inputs_.clear();
  for (const FusedCalls::Input& input : fused.inputs) {
    Blob& blob = first.blob(ids[input.operand]);
    if (blob.pending) {
      Call reader = first;
      reader.go_to(first.op_index + input.call);
      settle(blob, reader, input.position);
    }
    if (!blob.data && !find_data(blob)) return false;
    fused_inputs_.push_back(blob.data);
  }
  return true;
}

// Over an input that dies, else into memory of their own. Throws when that is short.
void KernelStream::take_fused_outputs(const Call& first, const FusedCalls& fused) {
  const OperandId* ids = first.inputs().data();
  fused_results_.clear();
  for (size_t k = 0; k < fused.outputs.size(); ++k) {
    FusedOutput& output = fused_outputs_.emplace_back();
    for (uint32_t i : fused.kernel->may_overwrite(k)) {
      Blob& blob = first.blob(ids[fused.inputs[i].operand]);
      if (!fused.inputs[i].dies || !blob.value || !blob.is_reusable() || !may_take_over()) continue;
      output = {std::move(blob.value), blob.kind, &blob};
      blob.data = nullptr;
      break;
    }
    if (!output.value) {
      const LocalSpec& spec = *first.spec_of(first.op_index + fused.outputs[k].call);
      output.kind = spec.output_kind;
      output.value = queue_ ? device_stream().allocate(spec.local.output_boxes[0].size,
                                                       spec.local.spec->outputs[0]->dtype, statistics_.memory)
                            : pool_.take(*output.kind);
    }
    fused_results_.push_back(output.value.data());
  }
}

void KernelStream::give_back_fused_outputs() {
  for (FusedOutput& output : fused_outputs_) {
    if (output.overwritten != nullptr) {
      output.overwritten->value = std::move(output.value);
    } else if (output.value && output.kind != nullptr) {
      pool_.give_back(*output.kind, std::move(output.value));
    }
  }
  fused_outputs_.clear();
}

void KernelStream::finish_fused(const Call& first, const FusedCalls& fused, const PoisonPtr& poison,
                                const std::vector<NativeTensor>& expected) {
  const OperandId* ids = first.inputs().data();
  for (const FusedCalls::Input& input : fused.inputs) {
    if (!input.dies) continue;
    Blob& blob = first.blob(ids[input.operand]);
    if (blob.value) {
      drop(blob);
    } else {
      blob.kind = nullptr;  // overwritten
    }
  }
  for (size_t k = 0; k < fused.outputs.size(); ++k) {
    FusedOutput& output = fused_outputs_[k];
    Call maker = first;
    maker.go_to(first.op_index + fused.outputs[k].call);
    PoisonPtr cause = poison;
    try {
      if (!cause) check_outputs(maker, {&output.value, 1});
      if (!cause && !expected.empty()) require_same_result(expected[k], output.value);
    } catch (...) {
      cause = fail(maker, std::current_exception());
    }
    if (cause) {
      poison_outputs(maker, cause);
      continue;
    }
    Blob& result = first.blob(ids[fused.outputs[k].operand]);
    if (!result.is_empty()) drop(result);
    result.value = std::move(output.value);
    result.kind = output.kind;
    result.data = fused_results_[k];
  }
  fused_outputs_.clear();
}

// What the members' own kernels make of the inputs: the outputs. Before anything is overwritten.
std::vector<NativeTensor> KernelStream::results_one_by_one(const Call& first, const FusedCalls& fused,
                                                           std::span<const Scalar> scalars) {
  const FusedProgram& program = fused.program;
  std::vector<NativeTensor> values;
  for (const FusedCalls::Input& input : fused.inputs)
    values.push_back(first.blob(first.inputs().data()[input.operand]).value);
  for (size_t m = 0; m < program.members.size(); ++m) {
    const FusedProgram::Member& member = program.members[m];
    std::vector<NativeTensor> inputs;
    for (uint32_t value : member.inputs) inputs.push_back(values[value]);
    const std::vector<OperandId> no_last_use(inputs.size(), 0);
    NativeTensor result;
    KernelContext context(*member.local, inputs, {&result, 1}, scalars.first(member.num_scalars), no_last_use, nullptr);
    first.spec_of(first.op_index + m)->kernel(context);
    values.push_back(std::move(result));
    scalars = scalars.subspan(member.num_scalars);
  }
  std::vector<NativeTensor> outputs;
  for (uint32_t value : program.outputs) outputs.push_back(values[value]);
  return outputs;
}

}  // namespace dtorch
