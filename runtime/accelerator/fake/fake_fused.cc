// A fused kernel of a fake device: the members' own kernels, one after the other, as one piece of the stream's work.
#include "runtime/accelerator/fake/fake_memory.h"
#include "runtime/accelerator/fake/fake_stream.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch::fake {
namespace {

// A tensor of this shape over bytes that are the same number of elements.
NativeTensor shaped(const NativeTensor& bytes, const Shape& shape, DType dtype) {
  NativeTensor holder = bytes;
  return tensor_over(
      bytes.data(), static_cast<size_t>(bytes.num_bytes()), new NativeTensor(std::move(holder)),
      [](void* held) { delete static_cast<NativeTensor*>(held); }, shape, dtype);
}

class FakeFused final : public FusedKernel {
 public:
  FakeFused(Stream& stream, const FusedProgram& program) : stream_(stream), program_(program) {
    for (const FusedProgram::Member& member : program.members)
      kernels_.push_back(stream.driver().setup()->kernel_of(*member.def));
    // Each output may lie where an input did that is no single element: results are written when all has been read.
    for (uint32_t i = 0; i < program.num_inputs(); ++i) {
      if (!program.inputs[i].is_single) whole_inputs_.push_back(i);
    }
    for (uint32_t output : program.outputs) {
      overwrites_.emplace_back();
      for (uint32_t i : whole_inputs_) {
        if (program.inputs[i].dtype == program.dtype_of(output)) overwrites_.back().push_back(i);
      }
    }
  }
  std::span<const uint32_t> may_overwrite(size_t k) const override { return overwrites_[k]; }
  size_t scratch_bytes() const override { return 0; }
  void set_scalars(std::span<const Scalar> scalars) override { scalars_.assign(scalars.begin(), scalars.end()); }

  void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs, std::byte*) override {
    std::vector<NativeTensor> values, results;
    for (uint32_t i = 0; i < program_.num_inputs(); ++i) {
      const int64_t elements = program_.inputs[i].is_single ? 1 : program_.num_elements;
      values.push_back(memory_at(inputs[i], elements * size_of(program_.inputs[i].dtype)));
    }
    for (size_t k = 0; k < outputs.size(); ++k)
      results.push_back(memory_at(outputs[k], program_.num_elements * size_of(program_.dtype_of(program_.outputs[k]))));
    stream_.push([program = program_, kernels = kernels_, scalars = scalars_, values = std::move(values),
                  results = std::move(results)] { run_members(program, kernels, scalars, values, results); },
                 nullptr);
  }

 private:
  static void run_members(const FusedProgram& program, const std::vector<KernelFn>& kernels,
                          std::span<const Scalar> scalars, std::vector<NativeTensor> values,
                          const std::vector<NativeTensor>& results) {
    for (size_t m = 0; m < program.members.size(); ++m) {
      const FusedProgram::Member& member = program.members[m];
      std::vector<NativeTensor> inputs;
      for (size_t i = 0; i < member.inputs.size(); ++i) {
        const uint32_t value = member.inputs[i];
        inputs.push_back(value < program.num_inputs()
                             ? shaped(values[value], member.local->input_boxes[i].size, program.dtype_of(value))
                             : values[value]);
      }
      const std::vector<OperandId> no_last_use(inputs.size(), 0);
      NativeTensor result;
      KernelContext context(*member.local, inputs, {&result, 1}, scalars.first(member.num_scalars), no_last_use,
                            nullptr);
      kernels[m](context);
      scalars = scalars.subspan(member.num_scalars);
      values.push_back(result.contiguous());
    }
    for (size_t k = 0; k < results.size(); ++k) {
      const NativeTensor& value = values[program.outputs[k]];
      const NativeTensor target = shaped(results[k], value.local_shape(), value.dtype());
      copy_box(value, whole(value.local_shape()), target, whole(value.local_shape()));
    }
  }

  Stream& stream_;
  const FusedProgram program_;
  std::vector<KernelFn> kernels_;
  std::vector<Scalar> scalars_;
  std::vector<uint32_t> whole_inputs_;
  std::vector<std::vector<uint32_t>> overwrites_;  // by output
};

}  // namespace

std::unique_ptr<FusedKernel> Stream::fuse(const FusedProgram& program) {
  return std::make_unique<FakeFused>(*this, program);
}

}  // namespace dtorch::fake
