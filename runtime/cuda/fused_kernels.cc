// Runs of elementwise operators as one generated kernel.
#include <numeric>

#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/kernel_source/fused_source.h"
#include "runtime/kernel_source/prelude.h"

namespace dtorch::cuda {
namespace {

constexpr uintptr_t kAlignment = 16;

class CudaFusedKernel final : public FusedKernel {
 public:
  CudaFusedKernel(const FusedProgram& program, kernel_source::FusedSource source, CudaStream& stream)
      : stream_(stream), source_(std::move(source)), num_elements_(program.num_elements) {
    numbers_.resize(source_.number_is_floating.size());
    for (uint32_t output : program.outputs) {
      std::vector<uint32_t>& inputs = may_overwrite_.emplace_back();
      for (uint32_t i = 0; i < program.num_inputs(); ++i) {
        if (!program.inputs[i].is_single && program.inputs[i].dtype == program.dtype_of(output)) inputs.push_back(i);
      }
    }
    for (const FusedProgram::Input& input : program.inputs) is_single_.push_back(input.is_single);
  }

  std::span<const uint32_t> may_overwrite(size_t k) const override { return may_overwrite_[k]; }
  size_t scratch_bytes() const override { return 0; }
  void set_scalars(std::span<const Scalar> scalars) override {
    DTORCH_CHECK(scalars.size() == numbers_.size(), "numbers of a fused kernel");
    for (size_t i = 0; i < scalars.size(); ++i) numbers_[i] = scalars[i].bits;
  }
  void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs, std::byte*) override {
    std::vector<std::byte*> pointers(inputs.begin(), inputs.end());
    pointers.insert(pointers.end(), outputs.begin(), outputs.end());
    bool is_aligned = true;
    std::vector<void*> arguments;
    for (size_t i = 0; i < pointers.size(); ++i) {
      const bool counts = i >= is_single_.size() || !is_single_[i];
      is_aligned &= !counts || reinterpret_cast<uintptr_t>(pointers[i]) % kAlignment == 0;
      arguments.push_back(&pointers[i]);
    }
    for (uint64_t& number : numbers_) arguments.push_back(&number);
    arguments.push_back(&num_elements_);
    const int32_t width = is_aligned ? source_.width : 1;
    stream_.run_compiled(
        source_.text, is_aligned ? source_.name : source_.unaligned_name,
        [this] { return kernel_source::prelude() + source_.text; }, (num_elements_ + width - 1) / width, arguments);
  }

 private:
  CudaStream& stream_;
  const kernel_source::FusedSource source_;
  int64_t num_elements_;
  std::vector<uint64_t> numbers_;
  std::vector<std::vector<uint32_t>> may_overwrite_;
  std::vector<bool> is_single_;
};

}  // namespace

std::unique_ptr<FusedKernel> make_fused_kernel(const FusedProgram& program, CudaStream& stream) {
  std::optional<kernel_source::FusedSource> source = kernel_source::fused_source(program, "fused");
  if (!source) return nullptr;
  return std::make_unique<CudaFusedKernel>(program, std::move(*source), stream);
}

std::unique_ptr<FusedKernel> make_call_kernel(const LocalOperator& local, const OperatorDef& def, uint32_t num_scalars,
                                              CudaStream& stream) {
  if (!kernel_source::has_formula(def, local)) return nullptr;
  FusedProgram program;
  const Shape& shape = local.output_boxes[0].size;
  program.num_elements = shape.num_elements();
  FusedProgram::Member member{.def = &def, .local = &local, .inputs = {}, .num_scalars = num_scalars};
  member.inputs.resize(local.spec->inputs.size());
  std::iota(member.inputs.begin(), member.inputs.end(), 0u);
  for (size_t i = 0; i < local.spec->inputs.size(); ++i) {
    const Shape& size = local.input_boxes[i].size;
    program.inputs.push_back({local.spec->inputs[i]->dtype, size != shape && size.num_elements() == 1});
  }
  program.outputs = {program.num_inputs()};
  program.members.push_back(std::move(member));
  return make_fused_kernel(program, stream);
}

}  // namespace dtorch::cuda
