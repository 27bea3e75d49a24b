// The way of a call through a prepared kernel: set pointers, run. Everything else about a call is in kernel_stream.cc.
#include <array>
#include <cstring>

#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/prepared_check.h"

namespace dtorch {
namespace {

bool same_bytes(const NativeTensor& a, const NativeTensor& b) {
  const NativeTensor packed = a.contiguous(), other = b.contiguous();
  return packed.local_shape() == other.local_shape() && packed.dtype() == other.dtype() &&
         std::memcmp(packed.data(), other.data(), static_cast<size_t>(other.num_bytes())) == 0;
}

}  // namespace

std::atomic<bool> prepared_is_checked{false};

void require_same_result(const NativeTensor& expected, const NativeTensor& output) {
  if (!same_bytes(expected, output)) {
    throw InternalError("other bytes than the operator's kernel gives when it may not take over memory");
  }
  if (output.num_elements() == 0 || expected.strides() == output.strides()) return;
  throw InternalError("strides " + output.strides().str() + ", but " + expected.strides().str() +
                      " when the operator's kernel may not take over memory");
}

bool KernelStream::run_prepared(Call& call) {
  const std::span<const OperandId> ids = call.inputs();
  std::array<const NativeTensor*, LocalSpec::kMaxPreparedInputs> inputs;
  for (size_t i = 0; i < ids.size(); ++i) {
    inputs[i] = &call.blob(ids[i]).value;
    if (!*inputs[i]) return false;  // on its way, poisoned or missing
  }
  if (aborting()) return false;
  const std::span<const NativeTensor* const> operands(inputs.data(), ids.size());
  const LocalSpec& spec = *call.spec;
  PreparedKernel& kernel = *spec.prepared;
  TensorPool::Kind* kind = spec.output_kind;
  PoisonPtr poison;
  NativeTensor output;
  try {
    std::vector<NativeTensor> expected;
    if (check_prepared()) [[unlikely]]
      expected = kernel_results(call, operands);
    Blob* overwritten = nullptr;
    uint32_t may_overwrite = kernel.may_overwrite();
    for (size_t i = 0; may_overwrite != 0; ++i, may_overwrite >>= 1) {
      if ((may_overwrite & 1u) == 0 || (ids[i] & kLastUse) == 0 || !inputs[i]->is_reusable()) continue;
      overwritten = &call.blob(ids[i]);
      break;
    }
    if (overwritten) {
      if (!kernel.run(operands, overwritten->value, call.scalars())) return false;
      output = std::move(overwritten->value);
      kind = overwritten->kind;
    } else {
      output = pool_.take(*kind);
      if (!kernel.run(operands, output, call.scalars())) {
        pool_.give_back(*kind, std::move(output));
        return false;
      }
    }
    ++kernels_run_;
    const bool is_right = has_metadata(output, spec.local.output_boxes[0].size, spec.local.spec->outputs[0]->dtype);
    if (!is_right) check_outputs(call, {&output, 1});  // says what is wrong
    if (!expected.empty()) require_same_result(expected[0], output);
  } catch (...) {
    poison = fail(call, std::current_exception());
    output.reset();
  }
  for (OperandId id : ids) {
    if ((id & kLastUse) == 0) continue;
    Blob& blob = call.blob(id);
    if (blob.value) {
      drop(blob);
    } else {
      blob.kind = nullptr;  // overwritten, or the same operand twice
    }
  }
  if (poison) {
    poison_outputs(call, poison);
    return true;
  }
  Blob& result = call.blob(call.outputs()[0]);
  if (!result.is_empty()) drop(result);
  result.value = std::move(output);
  result.kind = kind;
  return true;
}

std::vector<NativeTensor> KernelStream::kernel_results(const Call& call, std::span<const NativeTensor* const> inputs) {
  // Handles of their own and no last use, so that nothing is overwritten.
  std::vector<NativeTensor> values;
  for (const NativeTensor* input : inputs) values.push_back(*input);
  std::vector<OperandId> ids(call.inputs().begin(), call.inputs().end());
  for (OperandId& id : ids) id &= kMaxOperand;
  std::vector<NativeTensor> results(call.op->num_outputs);
  KernelContext context(call.spec->local, values, results, call.scalars(), ids, nullptr);
  call.spec->kernel(context);
  return results;
}

// Empty where nothing can be taken over, or a call has effects.
std::vector<NativeTensor> KernelStream::expected_results(const Call& call) const {
  const std::span<const OperandId> ids = call.inputs();
  const OperatorDef& def = OperatorRegistry::global().at(call.spec->local.spec->op);
  if (def.klass != OperatorClass::kPure || call.spec->uses_feed) return {};
  bool may_reuse = false;
  std::vector<const NativeTensor*> inputs;
  for (size_t i = 0; i < ids.size(); ++i) {
    inputs.push_back(&inputs_[i]);
    may_reuse |= (ids[i] & kLastUse) != 0 && inputs_[i] && inputs_[i].is_reusable();
  }
  return may_reuse ? kernel_results(call, inputs) : std::vector<NativeTensor>();
}

}  // namespace dtorch
