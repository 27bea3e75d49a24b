// A run of elementwise operators on the CPU: a block of some KiB goes through all members before the next one, so that
// what is between them stays in the cache and never gets memory of its own. Every block is done by the members' own
// loops. Blocks are whole multiples of what a vectorised loop takes at a time, so that an element is computed by the
// same code as in a loop over the whole tensor (its last elements by the code for a rest): results are equal bit for
// bit.
#include <algorithm>

#include "runtime/worker/device_backend.h"
#include "runtime/worker/fused_kernel.h"

namespace dtorch {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;  // of a value; a power of two
constexpr int64_t kAlignment = 64;

class BlockedKernel final : public FusedKernel {
 public:
  // False from prepare(): a member can't be run on blocks.
  explicit BlockedKernel(const FusedProgram& program);
  bool prepare(const FusedProgram& program, DeviceBackend& backend);

  std::span<const uint32_t> may_overwrite(size_t k) const override { return may_overwrite_[k]; }
  size_t scratch_bytes() const override { return num_scratch_ * static_cast<size_t>(scratch_stride_); }
  void set_scalars(std::span<const Scalar> scalars) override;
  void run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs, std::byte* scratch) override;

 private:
  // Where a value's block is: places are the inputs, the outputs, the scratch blocks.
  struct Step {
    uint32_t first_operand = 0;  // into operands_
    uint32_t num_inputs = 0;
    uint32_t output = 0;  // place
    uint32_t num_scalars = 0;
  };
  using Kernels = std::vector<std::unique_ptr<ElementwisePrepared>>;  // by step

  static bool prepare_steps(const FusedProgram& program, int64_t num_elements, DeviceBackend& backend,
                            Kernels& kernels);
  void find_overwritable(const FusedProgram& program);
  void place_values(const FusedProgram& program);
  void run_block(Kernels& kernels);

  int64_t block_elements_ = 0;
  int64_t num_blocks_ = 0, rest_elements_ = 0;
  Kernels of_block_, of_rest_;
  std::vector<Step> steps_;
  std::vector<uint32_t> operands_;      // places
  std::vector<int64_t> advance_;        // by input and output: bytes from block to block
  std::vector<std::byte*> at_;          // by place: this block's first element
  std::vector<uint32_t> last_readers_;  // by value: the last member that reads it, or kNone
  std::vector<std::vector<uint32_t>> may_overwrite_;
  std::vector<std::byte*> step_inputs_;
  uint32_t num_scratch_ = 0;
  int64_t scratch_stride_ = 0;
  static constexpr uint32_t kNone = 0xFFFFFFFFu;
};

// The operator on as many elements in one row.
LocalOperator on_elements(const LocalOperator& local, const FusedProgram& program, const FusedProgram::Member& member,
                          int64_t num_elements) {
  const auto box = [](int64_t size) { return Box{{0}, {size}}; };
  LocalOperator result = local;
  for (size_t i = 0; i < member.inputs.size(); ++i) {
    const uint32_t value = member.inputs[i];
    const bool is_single = value < program.num_inputs() && program.inputs[value].is_single;
    result.input_boxes[i] = box(is_single ? 1 : num_elements);
  }
  result.output_boxes[0] = box(num_elements);
  return result;
}

// Whether the member's result may have the memory of a value that nobody reads afterwards.
bool may_write_over(const PreparedKernel& kernel, const FusedProgram::Member& member, uint32_t value, bool same_dtype) {
  bool may = same_dtype;
  for (size_t i = 0; i < member.inputs.size(); ++i)
    may &= member.inputs[i] != value || (kernel.may_overwrite() >> i & 1u) != 0;
  return may;
}

BlockedKernel::BlockedKernel(const FusedProgram& program) {
  int64_t element_bytes = 1;
  const auto num_values = static_cast<uint32_t>(program.inputs.size() + program.members.size());
  for (uint32_t value = 0; value < num_values; ++value)
    element_bytes = std::max<int64_t>(element_bytes, size_of(program.dtype_of(value)));
  block_elements_ = kBlockBytes / element_bytes;
  num_blocks_ = program.num_elements / block_elements_;
  rest_elements_ = program.num_elements % block_elements_;
  const int64_t largest = num_blocks_ > 0 ? block_elements_ : rest_elements_;
  scratch_stride_ = (largest * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
  last_readers_.assign(num_values, kNone);
  for (uint32_t m = 0; m < program.members.size(); ++m) {
    for (uint32_t value : program.members[m].inputs) last_readers_[value] = m;
  }
}

bool BlockedKernel::prepare(const FusedProgram& program, DeviceBackend& backend) {
  if (num_blocks_ > 0 && !prepare_steps(program, block_elements_, backend, of_block_)) return false;
  if (rest_elements_ > 0 && !prepare_steps(program, rest_elements_, backend, of_rest_)) return false;
  find_overwritable(program);
  place_values(program);
  return true;
}

bool BlockedKernel::prepare_steps(const FusedProgram& program, int64_t num_elements, DeviceBackend& backend,
                                  Kernels& kernels) {
  for (const FusedProgram::Member& member : program.members) {
    std::unique_ptr<PreparedKernel> kernel =
        backend.prepare(*member.def, on_elements(*member.local, program, member, num_elements));
    auto* elementwise = dynamic_cast<ElementwisePrepared*>(kernel.get());
    if (elementwise == nullptr) return false;
    static_cast<void>(kernel.release());
    kernels.emplace_back(elementwise);
  }
  return true;
}

// A block of the input is read for the last time before, or when, the output's is written.
void BlockedKernel::find_overwritable(const FusedProgram& program) {
  const Kernels& kernels = num_blocks_ > 0 ? of_block_ : of_rest_;
  for (uint32_t output : program.outputs) {
    std::vector<uint32_t>& inputs = may_overwrite_.emplace_back();
    const uint32_t m = output - program.num_inputs();
    for (uint32_t input = 0; input < program.num_inputs(); ++input) {
      if (program.inputs[input].is_single || last_readers_[input] > m) continue;
      const bool same_dtype = program.inputs[input].dtype == program.dtype_of(output);
      if (may_write_over(*kernels[m], program.members[m], input, same_dtype)) inputs.push_back(input);
    }
  }
}

// Gives every value a place. A result that is wanted by members only gets a scratch block: that of an input which it
// may overwrite, else a free one.
void BlockedKernel::place_values(const FusedProgram& program) {
  const Kernels& kernels = num_blocks_ > 0 ? of_block_ : of_rest_;
  const uint32_t num_inputs = program.num_inputs();
  const auto first_scratch = static_cast<uint32_t>(num_inputs + program.outputs.size());
  std::vector<uint32_t> place_of(last_readers_.size(), kNone);
  for (uint32_t i = 0; i < num_inputs; ++i) place_of[i] = i;
  std::vector<uint32_t> free;
  size_t next_output = 0;
  for (uint32_t m = 0; m < program.members.size(); ++m) {
    const FusedProgram::Member& member = program.members[m];
    const uint32_t value = num_inputs + m;
    Step step{.first_operand = static_cast<uint32_t>(operands_.size()),
              .num_inputs = static_cast<uint32_t>(member.inputs.size()),
              .num_scalars = member.num_scalars};
    std::vector<uint32_t> dying;  // scratch places whose values this member reads last
    uint32_t taken_over = kNone;
    for (uint32_t input : member.inputs) {
      const uint32_t place = place_of[input];
      operands_.push_back(place);
      if (place < first_scratch || last_readers_[input] != m) continue;
      if (std::ranges::find(dying, place) == dying.end()) dying.push_back(place);
      if (may_write_over(*kernels[m], member, input, program.dtype_of(input) == program.dtype_of(value)))
        taken_over = place;
    }
    if (next_output < program.outputs.size() && program.outputs[next_output] == value) {
      step.output = num_inputs + static_cast<uint32_t>(next_output++);
      taken_over = kNone;
    } else if (taken_over != kNone) {
      step.output = taken_over;
    } else if (!free.empty()) {
      step.output = free.back();
      free.pop_back();
    } else {
      step.output = first_scratch + num_scratch_++;
    }
    place_of[value] = step.output;
    for (uint32_t place : dying) {
      if (place != step.output) free.push_back(place);
    }
    // What nobody reads: its block is free at once.
    if (step.output >= first_scratch && last_readers_[value] == kNone) free.push_back(step.output);
    steps_.push_back(step);
  }
  for (const FusedProgram::Input& input : program.inputs)
    advance_.push_back(input.is_single ? 0 : block_elements_ * size_of(input.dtype));
  for (uint32_t output : program.outputs) advance_.push_back(block_elements_ * size_of(program.dtype_of(output)));
  at_.resize(size_t{first_scratch} + num_scratch_);
  step_inputs_.resize(operands_.size());
}

void BlockedKernel::set_scalars(std::span<const Scalar> scalars) {
  if (scalars.empty()) return;  // nearly always
  for (size_t s = 0, first = 0; s < steps_.size(); first += steps_[s++].num_scalars) {
    const std::span<const Scalar> own = scalars.subspan(first, steps_[s].num_scalars);
    if (num_blocks_ > 0) of_block_[s]->set_scalars(own);
    if (rest_elements_ > 0) of_rest_[s]->set_scalars(own);
  }
}

void BlockedKernel::run(std::span<std::byte* const> inputs, std::span<std::byte* const> outputs, std::byte* scratch) {
  std::byte** next = std::ranges::copy(outputs, std::ranges::copy(inputs, at_.data()).out).out;
  for (uint32_t i = 0; i < num_scratch_; ++i) *next++ = scratch + i * scratch_stride_;
  for (int64_t block = 0; block < num_blocks_; ++block) {
    run_block(of_block_);
    for (size_t place = 0; place < advance_.size(); ++place) at_[place] += advance_[place];
  }
  if (rest_elements_ > 0) run_block(of_rest_);
}

void BlockedKernel::run_block(Kernels& kernels) {
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    std::byte** const first = step_inputs_.data();
    for (uint32_t i = 0; i < step.num_inputs; ++i) first[i] = at_[operands_[step.first_operand + i]];
    kernels[s]->run_on(at_[step.output], {first, step.num_inputs});
  }
}

}  // namespace

std::unique_ptr<FusedKernel> make_blocked_kernel(const FusedProgram& program, DeviceBackend& backend) {
  auto kernel = std::make_unique<BlockedKernel>(program);
  if (!kernel->prepare(program, backend)) return nullptr;
  return kernel;
}

}  // namespace dtorch
