// Prepared kernels for few elements of several dtypes: operands are cast into memory of the kernel's own, as LibTorch
// casts them to the dtype that it computes in, and then it is a kernel of one dtype.
#include "ops/math/memory_loop.h"

#if DTORCH_WITH_KERNELS
#include <algorithm>
#include <array>
#include <type_traits>

#include "dtorch/kernel.h"
#include "ops/math/operators.h"

namespace dtorch::math {
namespace {

constexpr size_t kNumOperands = 2;
// Of an operand after the cast; larger ones are LibTorch's, whose casts may take several threads.
constexpr int64_t kMaxCastBytes = 16 << 10;

using CastLoop = void (*)(std::byte* output, const std::byte* input, size_t count);

template <class From, class To>
void cast_loop(std::byte* output, const std::byte* input, size_t count) {
  const auto* from = reinterpret_cast<const From*>(input);
  auto* to = reinterpret_cast<To*>(output);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

// Null: not one of C++'s numbers.
CastLoop find_cast(DType from, DType to) {
  CastLoop found = nullptr;
  visit_dtype(from, [&]<class From>() {
    if constexpr (std::is_arithmetic_v<From>) found = to == kFloat32 ? cast_loop<From, float> : cast_loop<From, double>;
  });
  return found;
}

class CastingKernel final : public ElementwisePrepared {
 public:
  struct Cast {
    CastLoop loop = nullptr;  // null: it has the dtype
    size_t count = 0;         // elements
    std::vector<std::byte> memory;
  };
  // kernel: for operands that are all of the dtype.
  CastingKernel(std::unique_ptr<PreparedKernel> kernel, std::array<Cast, kNumOperands> casts)
      : owned_(std::move(kernel)), kernel_(*owned_->on_memory()), casts_(std::move(casts)) {
    may_overwrite_ = owned_->may_overwrite();
    for (size_t i = 0; i < kNumOperands; ++i) {
      if (casts_[i].loop != nullptr) may_overwrite_ &= ~(1u << i);
    }
  }

  bool run(std::span<const NativeTensor* const> inputs, const NativeTensor& output,
           std::span<const Scalar> scalars) override {
    std::array<std::byte*, kNumOperands> first;
    for (size_t i = 0; i < kNumOperands; ++i) {
      if (!inputs[i]->is_contiguous()) return false;
      first[i] = inputs[i]->data();
    }
    set_scalars(scalars);
    run_on(output.data(), first);
    return true;
  }
  void set_scalars(std::span<const Scalar> scalars) override { kernel_.set_scalars(scalars); }
  void run_on(std::byte* output, std::span<std::byte* const> inputs) override {
    std::array<std::byte*, kNumOperands> operands{inputs[0], inputs[1]};
    for (size_t i = 0; i < kNumOperands; ++i) {
      Cast& cast = casts_[i];
      if (cast.loop == nullptr) continue;
      cast.loop(cast.memory.data(), operands[i], cast.count);
      operands[i] = cast.memory.data();
    }
    kernel_.run_on(output, operands);
  }
  ElementwisePrepared* on_memory() override { return this; }

 private:
  const std::unique_ptr<PreparedKernel> owned_;
  ElementwisePrepared& kernel_;
  std::array<Cast, kNumOperands> casts_;
};

}  // namespace

bool needs_casts(const LocalOperator& local) {
  const OperatorSpec& spec = *local.spec;
  return std::ranges::any_of(spec.inputs,
                             [&](const TensorMeta* input) { return input->dtype != spec.outputs[0]->dtype; });
}

std::unique_ptr<PreparedKernel> prepare_with_casts(const LocalOperator& local, PrepareFn prepare) {
  const DType dtype = local.spec->outputs[0]->dtype;
  const int64_t num_elements = local.output_boxes[0].size.num_elements();
  if (local.spec->inputs.size() != kNumOperands || (dtype != kFloat32 && dtype != kFloat64)) return nullptr;
  if (num_elements == 0 || num_elements * size_of(dtype) > kMaxCastBytes) return nullptr;
  OperatorSpec same = *local.spec;
  std::array<CastingKernel::Cast, kNumOperands> casts;
  for (size_t i = 0; i < kNumOperands; ++i) {
    const TensorMeta& input = *local.spec->inputs[i];
    if (input.dtype == dtype) continue;
    casts[i].loop = find_cast(input.dtype, dtype);
    if (casts[i].loop == nullptr) return nullptr;
    casts[i].count = static_cast<size_t>(local.input_boxes[i].size.num_elements());
    casts[i].memory.resize(casts[i].count * static_cast<size_t>(size_of(dtype)));
    same.inputs[i] = intern_meta(input.global_shape, dtype, input.layout);
  }
  LocalOperator changed = local;
  changed.spec = &same;
  std::unique_ptr<PreparedKernel> kernel = prepare(changed);
  if (kernel == nullptr || kernel->on_memory() == nullptr) return nullptr;
  return std::make_unique<CastingKernel>(std::move(kernel), std::move(casts));
}

}  // namespace dtorch::math
#endif
