// What an operator may give beside its kernel: one whose set-up (checks, strides, choice of a loop) was done once, when
// its spec was lowered for a device. A call then sets pointers and runs. Made by OperatorDef::prepare on the
// Sub-Controller's thread, afterwards used by the device's stream alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/def/native_tensor.h"
#include "runtime/graph/logical_graph.h"

namespace dtorch {

class ElementwisePrepared;

// Of operators with one output. Gives, bit for bit, what the operator's kernel gives.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  // output: contiguous, of the inferred local shape and dtype, without meaningful contents; or an input that
  // may_overwrite() names. False, and nothing is written: the inputs' strides aren't those that it was prepared for;
  // the operator's kernel has to do it.
  virtual bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output,
                   std::span<const Scalar> scalars) = 0;
  // Itself, when run_on() on contiguous operands is all that run() does; else null.
  virtual ElementwisePrepared* on_memory() { return nullptr; }
  // Bit i: the output may be input i itself.
  uint32_t may_overwrite() const { return may_overwrite_; }

 protected:
  PreparedKernel() = default;
  PreparedKernel(const PreparedKernel&) = delete;
  PreparedKernel& operator=(const PreparedKernel&) = delete;
  uint32_t may_overwrite_ = 0;
};

// Of operators with OperatorDef::elementwise whose operands have the output's shape or one element: runs on bare memory
// too, so that a tensor can be taken block by block through several operators (runtime/worker/fused_kernel.h).
class ElementwisePrepared : public PreparedKernel {
 public:
  // The numbers of the calls of run_on() that follow. Throws what run() would throw of them.
  virtual void set_scalars(std::span<const Scalar> scalars) = 0;
  // As many elements as it was prepared for; contiguous. The output may be an input that may_overwrite() names.
  virtual void run_on(std::byte* output, std::span<std::byte* const> inputs) = 0;
};

}  // namespace dtorch
