// Generated elementwise kernels give what the operators' own kernels give: bit for bit where an operation is IEEE's, to
// a few units in the last place where a function of the mathematical library is in it (LibTorch's on the CPU is
// another).
#include "runtime/kernel_source/fused_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "dtorch/kernel.h"
#include "ops/math/operators.h"
#include "runtime/kernel_source/nvrtc.h"
#include "runtime/kernel_source/prelude.h"
#include "tests/kernel_source/calls.h"
#include "tests/kernel_source/host_kernels.h"

namespace dtorch::test {
namespace {

using kernel_source::fused_source;
using kernel_source::FusedSource;
using Bytes = std::vector<std::byte>;

constexpr int64_t kElements = 101;  // a rest behind every width

// Of the libraries' functions (MKL's square root isn't correctly rounded), and of formulas of several operations, which
// LibTorch's loops may contract.
const std::set<std::string> kRoundedElsewhere = {"exp",
                                                 "log",
                                                 "sin",
                                                 "cos",
                                                 "erf",
                                                 "tanh",
                                                 "sigmoid",
                                                 "silu",
                                                 "pow",
                                                 "silu_gradient",
                                                 "sigmoid_gradient",
                                                 "tanh_gradient",
                                                 "rsqrt",
                                                 "sqrt"};

template <class T>
bool are_close(T a, T b, double units) {
  const double x = static_cast<double>(a), y = static_cast<double>(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (x == y) return true;
  const double epsilon = std::is_same_v<T, double>     ? 0x1p-52
                         : std::is_same_v<T, float>    ? 0x1p-23
                         : std::is_same_v<T, Float16>  ? 0x1p-10
                         : std::is_same_v<T, BFloat16> ? 0x1p-7
                                                       : 0;
  return std::abs(x - y) <= units * epsilon * std::max({std::abs(x), std::abs(y), 0.5});  // differences cancel
}

// The first element that differs by more than `units` in the last place; -1: none. 0 units: every bit but those of
// NaNs.
int64_t first_difference(const Bytes& got, const Bytes& expected, DType dtype, double units) {
  int64_t found = -1;
  visit_dtype(dtype, [&]<class T>() {
    for (size_t i = 0; i < expected.size() / sizeof(T) && found < 0; ++i) {
      T a, b;
      std::memcpy(&a, got.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&b, expected.data() + i * sizeof(T), sizeof(T));
      const bool same = std::memcmp(&a, &b, sizeof(T)) == 0;
      if (!same && (units == 0 ? !(a != a && b != b) : !are_close(a, b, units))) found = static_cast<int64_t>(i);
    }
  });
  return found;
}

std::string value_text(const Bytes& bytes, DType dtype, int64_t at) {
  std::string text;
  visit_dtype(dtype, [&]<class T>() {
    T value;
    std::memcpy(&value, bytes.data() + static_cast<size_t>(at) * sizeof(T), sizeof(T));
    text = std::to_string(static_cast<double>(value));
  });
  return text;
}

struct Generated {
  std::deque<ElementwiseCall> calls = all_elementwise_calls(kElements);
  std::vector<const ElementwiseCall*> with_formula;
  std::vector<FusedSource> sources;
  std::string text;
  static const Generated& get() {
    static const Generated all;
    return all;
  }
  Generated() {
    for (const ElementwiseCall& call : calls) {
      const std::string name = "k" + std::to_string(sources.size());
      std::optional<FusedSource> source = fused_source(program_of(call, kElements), name);
      if (!source) continue;
      text += "// " + call.what + "\n" + source->text;
      with_formula.push_back(&call);
      sources.push_back(std::move(*source));
    }
  }
};

// Memory that begins at a multiple of 64 bytes, and some bytes behind it when it shall not.
class Memory {
 public:
  explicit Memory(const Bytes& contents, size_t odd_bytes = 0) : bytes_(contents.size() + 128) {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    data = bytes_.data() + (64 - address % 64) % 64 + odd_bytes;
    std::memcpy(data, contents.data(), contents.size());
  }
  std::byte* data;

 private:
  Bytes bytes_;
};

Bytes run_source(const HostKernels& kernels, const FusedSource& source, const FusedProgram& program,
                 const std::vector<Bytes>& inputs, const std::vector<Scalar>& scalars, bool aligned) {
  std::deque<Memory> memory;
  std::deque<std::byte*> pointers;
  std::vector<void*> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    memory.emplace_back(inputs[i], aligned ? 0 : static_cast<size_t>(size_of(program.inputs[i].dtype)));
    arguments.push_back(&pointers.emplace_back(memory.back().data));
  }
  const size_t out_bytes = static_cast<size_t>(program.num_elements * size_of(program.dtype_of(program.outputs[0])));
  memory.emplace_back(Bytes(out_bytes, std::byte{0xEE}));
  arguments.push_back(&pointers.emplace_back(memory.back().data));
  std::deque<uint64_t> words;
  for (const Scalar& scalar : scalars) arguments.push_back(&words.emplace_back(scalar.bits));
  arguments.push_back(&words.emplace_back(static_cast<uint64_t>(program.num_elements)));
  kernels.run(aligned ? source.name : source.unaligned_name, arguments, 5);
  return {memory.back().data, memory.back().data + out_bytes};
}

TEST(FusedSource, EveryElementwiseOperatorHasAFormula) {
  std::set<std::string> all, missing;
  for (const ElementwiseCall& call : Generated::get().calls) all.insert(call.def->name);
  missing = all;
  for (const ElementwiseCall* call : Generated::get().with_formula) missing.erase(call->def->name);
  EXPECT_GE(all.size(), 40u);
  EXPECT_TRUE(missing.empty()) << *missing.begin();
}

TEST(FusedSource, GivesWhatTheOperatorsGiveOnTheCpu) {
  const Generated& all = Generated::get();
  std::vector<std::string> names;
  for (const FusedSource& source : all.sources) {
    names.push_back(source.name);
    names.push_back(source.unaligned_name);
  }
  const HostKernels kernels(all.text, names);
  EXPECT_GE(all.sources.size(), 300u);
  int wrong = 0;
  for (size_t s = 0; s < all.sources.size() && wrong < 20; ++s) {
    const ElementwiseCall& call = *all.with_formula[s];
    std::vector<Bytes> inputs;
    for (size_t i = 0; i < call.inputs.size(); ++i)
      inputs.push_back(
          values_of(call.inputs[i].dtype, call.inputs[i].is_single ? 1 : kElements, static_cast<uint32_t>(17 * s + i)));
    const DType dtype = call.spec.outputs[0]->dtype;
    const Bytes expected = run_on_cpu(call, inputs, kElements);
    for (bool aligned : {true, false}) {
      const Bytes got = run_source(kernels, all.sources[s], program_of(call, kElements), inputs, call.scalars, aligned);
      const int64_t at = first_difference(got, expected, dtype, kRoundedElsewhere.count(call.def->name) != 0 ? 8 : 0);
      if (at < 0) continue;
      ++wrong;
      ADD_FAILURE() << call.what << (aligned ? "" : ", unaligned") << ": element " << at << " is "
                    << value_text(got, dtype, at) << ", not " << value_text(expected, dtype, at);
    }
  }
}

// All for sm_80; every fourth for sm_90, since the code differs in its target only.
TEST(FusedSource, CompilesForGpus) {
  const std::string problem = kernel_source::Nvrtc::problem();
  if (!problem.empty()) GTEST_SKIP() << problem;
  for (const size_t stride : {1, 4}) {
    const std::string arch = stride == 1 ? "80" : "90";
    std::string source = kernel_source::prelude();
    std::vector<std::string> names;
    for (size_t s = 0; s < Generated::get().sources.size(); s += stride) {
      source += Generated::get().sources[s].text;
      names.push_back(Generated::get().sources[s].name);
    }
    const std::string ptx = kernel_source::Nvrtc::get().compile(source, "compute_" + arch, false);
    EXPECT_NE(ptx.find(".target sm_" + arch), std::string::npos) << arch;
    for (const std::string& name : names)
      ASSERT_NE(ptx.find(".entry " + name + "("), std::string::npos) << name << ", sm_" << arch;
  }
}

}  // namespace
}  // namespace dtorch::test
