// The way of a call through a prepared kernel: set pointers, run. Everything else about a call is in kernel_stream.cc.
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/native/native_metadata.h"
#include "runtime/worker/prepared_check.h"

namespace dtorch {
namespace {

bool same_bytes(const NativeTensor& a, const NativeTensor& b) {
  const NativeTensor packed = a.contiguous(), other = b.contiguous();
  return packed.local_shape() == other.local_shape() && packed.dtype() == other.dtype() &&
         (other.num_bytes() == 0 ||  // which has no memory
          std::memcmp(packed.data(), other.data(), static_cast<size_t>(other.num_bytes())) == 0);
}

}  // namespace

std::atomic<bool> prepared_is_checked{false};

void require_same_result(const NativeTensor& expected, const NativeTensor& output) {
  if (!same_bytes(expected, output)) {
    throw InternalError("other bytes than the operator's kernel gives when it may not take over memory");
  }
  NativeTensor usual = expected;
  make_strides_canonical(usual);
  if (output.num_elements() == 0 || usual.strides() == output.strides()) return;
  throw InternalError("strides " + output.strides().str() + ", but " + usual.strides().str() +
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
      if ((may_overwrite & 1u) == 0 || (ids[i] & kLastUse) == 0 || !call.blob(ids[i]).is_reusable()) continue;
      overwritten = &call.blob(ids[i]);
      break;
    }
    if (overwritten) {
      if (!kernel.run(operands, overwritten->value, call.scalars())) return false;
      output = std::move(overwritten->value);
      kind = overwritten->kind;
      overwritten->data = nullptr;
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

bool KernelStream::find_data(Blob& blob) {
  if (!blob.value || !blob.value.is_contiguous()) return false;
  blob.data = blob.value.data();
  return blob.data != nullptr;
}

struct KernelStream::OnMemory {
  std::array<Blob*, LocalSpec::kMaxPreparedInputs> blobs;
  std::array<std::byte*, LocalSpec::kMaxPreparedInputs> data;
  uint32_t dying = 0;  // bit i: input i
};

// A result that is written through a pointer keeps the shape and dtype that its memory was taken for, so these aren't
// looked at again.
bool KernelStream::run_on_memory(const Call& call) {
  const OperandId* id = call.list.graph.operands.data() + call.op->first_operand;
  Blob* const blobs = call.list.blobs;
  const size_t num_inputs = call.op->num_inputs;
  OnMemory inputs;
  uint32_t bit = 1, dying = 0;  // not in `inputs`, which lie in memory
  for (size_t i = 0; i < num_inputs; ++i, ++id, bit <<= 1) {
    Blob& blob = blobs[*id & kMaxOperand];
    if (!blob.data && !find_data(blob)) return false;
    inputs.blobs[i] = &blob;
    inputs.data[i] = blob.data;
    if ((*id & kLastUse) != 0) dying |= bit;
  }
  if (aborting() || check_prepared()) return false;
  ElementwisePrepared& kernel = *call.spec->on_memory;
  for (uint32_t may = kernel.may_overwrite() & dying; may != 0; may &= may - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(may));
    Blob& source = *inputs.blobs[i];
    if (!source.is_reusable()) continue;
    if (!run_kernel_on(call, kernel, inputs.data[i], inputs)) return true;
    inputs.dying = dying & ~(may & -may);
    if (inputs.dying != 0) drop_dying(inputs, &source);
    Blob& result = blobs[*id];
    if (!result.is_empty()) drop(result);
    result.value = std::move(source.value);
    result.kind = source.kind;
    result.data = source.data;
    source.kind = nullptr;
    source.data = nullptr;
    return true;
  }
  inputs.dying = dying;
  run_on_new_memory(call, inputs, blobs[*id]);
  return true;
}

[[gnu::noinline]] void KernelStream::run_on_new_memory(const Call& call, const OnMemory& inputs, Blob& result) {
  TensorPool::Kind& kind = *call.spec->output_kind;
  NativeTensor output;
  try {
    output = pool_.take(kind);
  } catch (...) {
    return fail_prepared(call, std::current_exception());
  }
  std::byte* const data = output.data();
  if (!run_kernel_on(call, *call.spec->on_memory, data, inputs)) return;
  drop_dying(inputs, nullptr);
  if (!result.is_empty()) drop(result);
  result.value = std::move(output);
  result.kind = &kind;
  result.data = data;
}

// False: it has failed, which was seen to.
[[gnu::always_inline]] inline bool KernelStream::run_kernel_on(const Call& call, ElementwisePrepared& kernel,
                                                               std::byte* output, const OnMemory& inputs) {
  try {
    if (call.op->num_scalars != 0) kernel.set_scalars(call.scalars());
    kernel.run_on(output, {inputs.data.data(), call.op->num_inputs});
  } catch (...) {
    fail_prepared(call, std::current_exception());
    return false;
  }
  ++kernels_run_;
  return true;
}

// kept: not this one, though it may be an input twice.
void KernelStream::drop_dying(const OnMemory& inputs, const Blob* kept) {
  for (uint32_t dying = inputs.dying; dying != 0; dying &= dying - 1) {
    Blob& blob = *inputs.blobs[static_cast<size_t>(std::countr_zero(dying))];
    if (&blob != kept) drop(blob);
  }
}

void KernelStream::fail_prepared(const Call& call, const std::exception_ptr& error) {
  const PoisonPtr poison = fail(call, error);
  release_inputs(call);
  poison_outputs(call, poison);
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
