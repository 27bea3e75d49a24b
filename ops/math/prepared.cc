#include "ops/math/prepared.h"

#if DTORCH_WITH_KERNELS
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "dtorch/kernel.h"
#include "ops/math/operators.h"

namespace dtorch::math {
namespace {

constexpr size_t kMaxInputs = 4;
// Beyond that LibTorch's loop costs no more than one on memory.
constexpr int64_t kMaxMemoryLoopBytes = 16 << 10;

// A contiguous tensor that has sizes and no memory.
at::Tensor tensor_without_memory(const Shape& sizes, DType dtype) {
  alignas(64) static std::byte nowhere[64];
  const auto num_bytes = static_cast<size_t>(sizes.num_elements() * size_of(dtype));
  c10::Storage storage(c10::Storage::use_byte_size_t(), num_bytes, c10::DataPtr(nowhere, c10::kCPU), nullptr, false);
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(scalar_type(dtype)));
  impl->set_sizes_contiguous(sizes_of(sizes));
  return at::Tensor(std::move(impl));
}

// The first element of a tensor, without LibTorch's checks: it has memory of its own, which isn't copy-on-write.
inline std::byte* first_element(const NativeTensor& tensor) {
  const auto* impl = static_cast<const c10::TensorImpl*>(tensor.impl());
  auto* data = static_cast<char*>(impl->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
  const int64_t offset = impl->storage_offset();
  return reinterpret_cast<std::byte*>(offset == 0 ? data : data + static_cast<size_t>(offset) * impl->itemsize());
}

inline bool is_contiguous(const NativeTensor& tensor) {
  return static_cast<const c10::TensorImpl*>(tensor.impl())->is_contiguous();
}

// As at::Tensor::to does it, or, checked, as at::scalar_tensor: that throws when the number is out of T's range.
template <class T, bool kChecked>
void write_number(std::byte* cell, const Scalar& scalar, bool is_floating) {
  const auto converted = [](auto number) {
    return kChecked ? c10::checked_convert<T>(number, "the operator's dtype") : c10::convert<T>(number);
  };
  *reinterpret_cast<T*>(cell) = is_floating ? converted(scalar.as_double()) : converted(scalar.as_int());
}

// Loops of narrow floats take an operand of one element out of the iterator.
bool is_narrow(DType dtype) { return dtype == kFloat16 || dtype == kBFloat16; }
bool has_single_element(const LocalOperator& local) {
  return std::ranges::any_of(local.input_boxes, [](const Box& box) { return box.num_elements() == 1; });
}

// A number becomes what LibTorch casts its wrapped tensor to. Narrow floats aren't among them: their loops compute with
// the number as it was.
bool takes_number(DType dtype, int64_t number_kind) {
  if (dtype == kFloat32 || dtype == kFloat64) return true;
  return number_kind == kInteger && !is_floating(dtype) && dtype != kBool;
}

std::vector<int> in_order(size_t count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

std::unique_ptr<PreparedKernel> prepare_operands(const LocalOperator& local, Loop loop, IteratorKind kind,
                                                 bool floating_only, const std::vector<int>& operands, DType dtype,
                                                 int64_t number_kind) {
  const OperatorSpec& spec = *local.spec;
  const DType output = spec.outputs[0]->dtype;
  const bool is_select = kind == IteratorKind::kSelect;
  for (size_t i = is_select ? 1 : 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i]->dtype != dtype) return nullptr;
  }
  if (is_select && spec.inputs[0]->dtype != kBool) return nullptr;
  if (kind == IteratorKind::kComparison ? output != kBool : kind != IteratorKind::kCopy && output != dtype) {
    return nullptr;
  }
  if (floating_only && !is_floating(dtype)) return nullptr;
  if (kind == IteratorKind::kSame && dtype == kBool) return nullptr;
  if (number_kind != kNoNumber && !takes_number(dtype, number_kind)) return nullptr;
  if (is_narrow(dtype) && has_single_element(local)) return nullptr;
  if (local.output_boxes[0].size.num_elements() == 0) return nullptr;
  return std::make_unique<ElementwiseKernel>(local, loop, kind, operands, dtype, number_kind);
}

ElementwiseKernel::ElementwiseKernel(const LocalOperator& local, Loop loop, IteratorKind kind,
                                     const std::vector<int>& operands, DType number_dtype, int64_t number_kind)
    : loop_(loop), order_(operands), number_is_floating_(number_kind == kFloating) {
  DTORCH_CHECK(local.spec->inputs.size() <= kMaxInputs, "an elementwise operator with too many inputs");
  num_elements_ = static_cast<size_t>(local.output_boxes[0].size.num_elements());
  const Shape& output_shape = local.output_boxes[0].size;
  const DType output_dtype = local.spec->outputs[0]->dtype;
  operands_.push_back(tensor_without_memory(output_shape, output_dtype));
  std::vector<int> argument_of_input(local.spec->inputs.size(), 0);
  int number_argument = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const int argument = static_cast<int>(i) + 1;
    if (operands[i] == kNumber) {
      number_argument = argument;
      operands_.push_back(tensor_without_memory({}, number_dtype));
      continue;
    }
    const auto input = static_cast<size_t>(operands[i]);
    const TensorMeta& meta = *local.spec->inputs[input];
    argument_of_input[input] = argument;
    operands_.push_back(tensor_without_memory(local.input_boxes[input].size, meta.dtype));
    if (local.input_boxes[input].size == output_shape && meta.dtype == output_dtype) may_overwrite_ |= 1u << input;
  }
  if (number_argument != 0) {
    visit_dtype(number_dtype, [&]<class T>() {
      if constexpr (std::is_arithmetic_v<T>) {
        write_number_ = kind == IteratorKind::kSelect ? write_number<T, true> : write_number<T, false>;
      }
    });
    DTORCH_CHECK(write_number_ != nullptr, std::string("a number of dtype ") + name_of(number_dtype));
  }
  switch (kind) {
    case IteratorKind::kSame:
      if (operands_.size() == 2) iterator_.build_borrowing_unary_op(operands_[0], operands_[1]);
      if (operands_.size() == 3) iterator_.build_borrowing_binary_op(operands_[0], operands_[1], operands_[2]);
      break;
    case IteratorKind::kComparison:
      if (operands_.size() == 2) iterator_.build_borrowing_unary_force_boolean_op(operands_[0], operands_[1]);
      if (operands_.size() == 3) iterator_.build_borrowing_comparison_op(operands_[0], operands_[1], operands_[2]);
      break;
    case IteratorKind::kSelect:
    case IteratorKind::kCopy: {
      at::TensorIteratorConfig config;
      config.check_all_same_dtype(false).resize_outputs(false).add_output(operands_[0]);
      for (size_t i = 1; i < operands_.size(); ++i) config.add_const_input(operands_[i]);
      iterator_.build(config);
      break;
    }
  }
  DTORCH_CHECK(iterator_.ntensors() == static_cast<int>(operands_.size()), "an iterator with other operands");
  if (number_argument != 0) iterator_._unsafe_set_arg_data(number_argument, number_);
  pointers_.push_back(&iterator_.operand(0).data);
  for (int argument : argument_of_input) pointers_.push_back(&iterator_.operand(argument).data);
}

bool ElementwiseKernel::run(std::span<const NativeTensor* const> inputs, const NativeTensor& output,
                            std::span<const Scalar> scalars) {
  std::array<std::byte*, kMaxInputs> first;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_contiguous(*inputs[i])) return false;
    first[i] = first_element(*inputs[i]);
  }
  set_scalars(scalars);
  run_on(first_element(output), {first.data(), inputs.size()});
  return true;
}

void ElementwiseKernel::run_on(std::byte* output, std::span<std::byte* const> inputs) {
  if (memory_loop_ == nullptr) return run_loop(output, inputs);
  memory_loop_(output, operand(0, inputs), operand(1, inputs), num_elements_);
}

void ElementwiseKernel::run_loop(std::byte* output, std::span<std::byte* const> inputs) {
  void** const* pointer = pointers_.data();
  **pointer = output;
  for (std::byte* input : inputs) **++pointer = input;
  loop_(iterator_);
  // A loop that takes operands out would use others' the next time.
  DTORCH_CHECK(iterator_.ntensors() == static_cast<int>(operands_.size()), "a loop has changed its iterator");
}

std::unique_ptr<PreparedKernel> with_memory_loop(std::unique_ptr<PreparedKernel> kernel, const LocalOperator& local,
                                                 FindMemoryLoop find) {
  if (kernel == nullptr) return kernel;
  auto& elementwise = static_cast<ElementwiseKernel&>(*kernel);
  const Shape& output = local.output_boxes[0].size;
  const DType dtype = local.spec->outputs[0]->dtype;
  if (elementwise.order().size() != 2 || output.num_elements() * size_of(dtype) > kMaxMemoryLoopBytes) return kernel;
  std::array<bool, 2> is_single;
  for (size_t i = 0; i < 2; ++i) {
    const int input = elementwise.order()[i];
    const Shape size =
        input == ElementwiseKernel::kNumber ? Shape() : local.input_boxes[static_cast<size_t>(input)].size;
    is_single[i] = input == ElementwiseKernel::kNumber || (size != output && size.num_elements() == 1);
    if (!is_single[i] && size != output) return kernel;
  }
  if (is_single[0] && is_single[1]) return kernel;
  elementwise.set_memory_loop(find(dtype, is_single[0], is_single[1]));
  return kernel;
}

std::unique_ptr<PreparedKernel> prepare_inputs(const LocalOperator& local, Loop loop, IteratorKind kind,
                                               bool floating_only) {
  const std::vector<const TensorMeta*>& inputs = local.spec->inputs;
  const DType dtype = inputs[kind == IteratorKind::kSelect ? 1 : 0]->dtype;
  return prepare_operands(local, loop, kind, floating_only, in_order(inputs.size()), dtype, kNoNumber);
}

std::unique_ptr<PreparedKernel> prepare_with_number(const LocalOperator& local, Loop loop, IteratorKind kind,
                                                    bool floating_only) {
  const auto& attributes = *static_cast<const BinaryAttrs*>(local.attributes.get());
  std::vector<int> operands = in_order(local.spec->inputs.size());
  if (attributes.number != kNoNumber) {
    operands.insert(attributes.reversed ? operands.begin() : operands.end(), ElementwiseKernel::kNumber);
  }
  return prepare_operands(local, loop, kind, floating_only, operands, local.spec->inputs[0]->dtype, attributes.number);
}

}  // namespace dtorch::math
#endif
