// Prepared kernels (ops/def/prepared_kernel.h) of elementwise operators: one of LibTorch's loops on an iterator that
// was built once for contiguous operands of one dtype, so that a call neither promotes, nor checks, nor allocates.
// Operators whose operands must be cast aren't prepared: an iterator would keep the cast copy. Empty in builds without
// kernels.
#pragma once
#include "ops/def/operator_def.h"
#include "ops/def/prepared_kernel.h"

#if DTORCH_WITH_KERNELS
#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/TensorIterator.h>

#include <memory>
#include <vector>

namespace dtorch::math {

// A loop over the iterator's operands: the output, then the others in the operator's order.
using Loop = void (*)(at::TensorIterator&);

// LibTorch's loop of that name for the CPU at hand.
template <auto& kStub>
void loop_of(at::TensorIterator& iterator) {
  kStub(at::kCPU, iterator);
}

// The same on memory, of two operands, without an iterator (memory_loop.h). count: elements, at least 1.
using MemoryLoop = void (*)(std::byte* output, const std::byte* first, const std::byte* second, size_t count);

// What the iterator of an operator is like.
enum class IteratorKind : uint8_t {
  kSame,        // output and inputs of one dtype
  kComparison,  // inputs of one dtype, output bool
  kSelect,      // of where: bool, then two of the output's dtype
  kCopy,        // output of another dtype
};

class ElementwiseKernel final : public ElementwisePrepared {
 public:
  // operands: the loop's operands, each the number of an input, or kNumber for the call's scalar in the dtype
  // `number_dtype`. number_kind: of the scalar (NumberKind).
  static constexpr int kNumber = -1;
  ElementwiseKernel(const LocalOperator& local, Loop loop, IteratorKind kind, const std::vector<int>& operands,
                    DType number_dtype, int64_t number_kind);

  bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output,
           std::span<const Scalar> scalars) override;
  void set_scalars(std::span<const Scalar> scalars) override {
    if (write_number_ == nullptr) return;
    DTORCH_CHECK(!scalars.empty(), "a call without its number");
    write_number_(number_, scalars[0], number_is_floating_);
  }
  void run_on(std::byte* output, std::span<std::byte* const> inputs) override;
  ElementwisePrepared* on_memory() override { return this; }
  // In place of the loop; for two operands, each with the output's elements or one.
  void set_memory_loop(MemoryLoop loop) { memory_loop_ = loop; }
  // The loop's operands as the constructor got them.
  const std::vector<int>& order() const { return order_; }

 private:
  void run_loop(std::byte* output, std::span<std::byte* const> inputs);
  const std::byte* operand(size_t i, std::span<std::byte* const> inputs) const {
    return order_[i] == kNumber ? number_ : inputs[static_cast<size_t>(order_[i])];
  }

  const Loop loop_;
  MemoryLoop memory_loop_ = nullptr;
  size_t num_elements_ = 0;  // of the output
  std::vector<int> order_;
  void (*write_number_)(std::byte* cell, const Scalar& scalar, bool is_floating) = nullptr;
  bool number_is_floating_ = false;
  alignas(16) std::byte number_[16] = {};
  std::vector<at::Tensor> operands_;  // without memory; the iterator asks for their sizes
  at::TensorIterator iterator_;
  std::vector<void**> pointers_;  // the iterator's to the output, then to each input
};

// --- for OperatorDef::prepare; null where the operands' dtypes differ, or nothing is there to compute

// dtype: of the operands that the loop computes with. operands and number_kind as for ElementwiseKernel.
std::unique_ptr<PreparedKernel> prepare_operands(const LocalOperator& local, Loop loop, IteratorKind kind,
                                                 bool floating_only, const std::vector<int>& operands, DType dtype,
                                                 int64_t number_kind);
// All inputs in their order.
std::unique_ptr<PreparedKernel> prepare_inputs(const LocalOperator& local, Loop loop, IteratorKind kind,
                                               bool floating_only);
// The inputs, or the input and a number (BinaryAttrs).
std::unique_ptr<PreparedKernel> prepare_with_number(const LocalOperator& local, Loop loop, IteratorKind kind,
                                                    bool floating_only);

// What prepare_with_number() made for a call, with one of the loops that `find` knows when the call is small; null:
// none.
using FindMemoryLoop = MemoryLoop (*)(DType dtype, bool first_is_single, bool second_is_single);
std::unique_ptr<PreparedKernel> with_memory_loop(std::unique_ptr<PreparedKernel> kernel, const LocalOperator& local,
                                                 FindMemoryLoop find);

// Of inputs that all have the output's dtype, which is floating.
template <Loop kLoop>
std::unique_ptr<PreparedKernel> prepare_floating(const LocalOperator& local) {
  return prepare_inputs(local, kLoop, IteratorKind::kSame, true);
}
// Of two operands, one of which may be a number (BinaryAttrs).
template <Loop kLoop>
std::unique_ptr<PreparedKernel> prepare_binary(const LocalOperator& local) {
  return prepare_with_number(local, kLoop, IteratorKind::kSame, false);
}
template <Loop kLoop>
std::unique_ptr<PreparedKernel> prepare_floating_binary(const LocalOperator& local) {
  return prepare_with_number(local, kLoop, IteratorKind::kSame, true);
}
// Of one input, to another dtype.
template <Loop kLoop>
std::unique_ptr<PreparedKernel> prepare_copy(const LocalOperator& local) {
  return prepare_inputs(local, kLoop, IteratorKind::kCopy, false);
}
template <Loop kLoop>
std::unique_ptr<PreparedKernel> prepare_comparison(const LocalOperator& local) {
  return prepare_with_number(local, kLoop, IteratorKind::kComparison, false);
}

}  // namespace dtorch::math
#endif
