// Generated kernels of random values, dropout, optimizer steps and folds, against what the CPU does.
#include "runtime/kernel_source/random_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "ops/create/random_fill.h"
#include "runtime/comm/transfer.h"
#include "runtime/kernel_source/nvrtc.h"
#include "runtime/kernel_source/prelude.h"
#include "runtime/kernel_source/step_source.h"
#include "tests/kernel_source/calls.h"
#include "tests/kernel_source/host_kernels.h"

namespace dtorch::test {
namespace {

using namespace kernel_source;

constexpr DType kFloats[] = {kFloat16, kBFloat16, kFloat32, kFloat64};
constexpr DType kNumbers[] = {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
constexpr PhiloxCall kCall{0x123456789ABCDEFu, 77};

struct Sources {
  std::string text = random_prelude();
  std::vector<std::string> names;
  void add(const std::string& name, const std::string& of) {
    names.push_back(name);
    text += of;
  }
};

const Sources& all_sources() {
  static const Sources all = [] {
    Sources sources;
    for (RandomKind kind : {RandomKind::kUniform, RandomKind::kNormal, RandomKind::kDropout}) {
      for (DType dtype : kFloats) {
        const RandomSource source = random_source(kind, dtype);
        sources.add(source.name, source.text);
      }
    }
    for (DType dtype : kNumbers) {
      const RandomSource source = random_source(RandomKind::kInteger, dtype);
      sources.add(source.name, source.text);
      for (ReduceOp reduce : {kSum, kMax, kMin}) {
        for (const FoldStage stage : {FoldStage{}, FoldStage{true, false}, FoldStage{false, true}}) {
          const StepSource fold = fold_source(dtype, reduce, stage);
          sources.add(fold.name, fold.text);
        }
      }
    }
    for (DType dtype : kFloats) {
      const StepSource step = adamw_source(dtype);
      sources.add(step.name, step.text);
    }
    return sources;
  }();
  return all;
}

const HostKernels& kernels() {
  static const HostKernels compiled(all_sources().text, all_sources().names);
  return compiled;
}

// Parts of a global tensor: whole, rows, columns that don't begin at a multiple of four, a block in the middle.
struct PartOf {
  Shape global_shape;
  Box box;
};
std::vector<PartOf> parts() {
  return {{{5, 7}, {{0, 0}, {5, 7}}},
          {{5, 7}, {{1, 0}, {3, 7}}},
          {{5, 7}, {{0, 3}, {5, 3}}},
          {{4, 6, 5, 3}, {{1, 2, 0, 1}, {2, 3, 5, 2}}},
          {{4, 1, 9}, {{3, 0, 2}, {1, 1, 6}}},
          {{1 << 18, 1 << 18}, {{(1 << 18) - 2, 5}, {2, 9}}},  // numbers beyond 32 bits
          {{}, {{}, {}}}};
}

// fill: what the CPU's operator puts into a stretch.
template <class Fill>
void expect_fill(RandomKind kind, DType dtype, const std::vector<uint64_t>& more, double tolerance, Fill&& fill) {
  visit_dtype(dtype, [&]<class T>() {
    for (const PartOf& part : parts()) {
      const auto count = static_cast<size_t>(part.box.num_elements());
      const auto expected = std::make_unique<T[]>(count), got = std::make_unique<T[]>(count);
      for_each_contiguous_run(part.global_shape, part.box, [&](int64_t global, int64_t local, int64_t length) {
        fill.template operator()<T>(global, expected.get() + local, length);
      });
      PartParameter where = part_parameter(part.global_shape, part.box);
      T* to = got.get();
      uint64_t seed = kCall.seed, call = kCall.call;
      std::vector<uint64_t> words = more;
      std::vector<void*> arguments = {&to, &where, &seed, &call};
      for (uint64_t& word : words) arguments.push_back(&word);
      kernels().run(random_source(kind, dtype).name, arguments, 3);
      for (size_t i = 0; i < count; ++i) {
        const auto a = static_cast<double>(got[i]), b = static_cast<double>(expected[i]);
        ASSERT_LE(std::abs(a - b), tolerance * std::abs(b))
            << name_of(dtype) << " " << part.box.str() << " of " << part.global_shape.str() << ", element " << i;
      }
    }
  });
}

TEST(RandomSource, UniformBitsAreTheCpus) {
  for (DType dtype : kFloats) {
    expect_fill(RandomKind::kUniform, dtype, {}, 0, []<class T>(int64_t first, T* values, int64_t count) {
      create::fill_uniform(kCall, first, values, count);
    });
  }
}

TEST(RandomSource, NormalValuesAreTheCpus) {
  // The same library of mathematics here, so no bit differs; on a GPU the last bits of float64 may.
  for (DType dtype : kFloats) {
    expect_fill(RandomKind::kNormal, dtype, {}, 0, []<class T>(int64_t first, T* values, int64_t count) {
      create::fill_normal(kCall, first, values, count);
    });
  }
}

TEST(RandomSource, IntegersAreTheCpus) {
  const int64_t low = -3;
  const uint64_t range = 12;
  for (DType dtype : kNumbers) {
    expect_fill(RandomKind::kInteger, dtype, {static_cast<uint64_t>(low), range}, 0,
                [&]<class T>(int64_t first, T* values, int64_t count) {
                  for (int64_t e = first; e < first + count; ++e) {
                    const PhiloxBlock high = kCall.block(static_cast<uint64_t>(e) / 4, 0);
                    const PhiloxBlock rest = kCall.block(static_cast<uint64_t>(e) / 4, 1);
                    const uint64_t word = uint64_t{high[e % 4]} << 32 | rest[e % 4];
                    const auto scaled = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * range >> 64);
                    values[e - first] = static_cast<T>(static_cast<int64_t>(static_cast<uint64_t>(low) + scaled));
                  }
                });
  }
}

TEST(RandomSource, DropoutKeepsWhatTheCpuKeeps) {
  const double p = 0.3;
  uint64_t limit = static_cast<uint64_t>((1 - p) * 4294967296.0);
  double scale = 1 / (1 - p);
  for (DType dtype : kFloats) {
    visit_dtype(dtype, [&]<class T>() {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      for (const PartOf& part : parts()) {
        const auto count = part.box.num_elements();
        const std::vector<std::byte> x = values_of(dtype, count, 5);
        const T* from = reinterpret_cast<const T*>(x.data());
        const auto bytes = static_cast<size_t>(count) * sizeof(T);
        const auto expected = std::make_unique<T[]>(static_cast<size_t>(count)),
                   got = std::make_unique<T[]>(static_cast<size_t>(count));
        for_each_contiguous_run(part.global_shape, part.box, [&](int64_t global, int64_t local, int64_t length) {
          kCall.for_each_word(global, length, [&](int64_t e, uint32_t word) {
            const auto at = static_cast<size_t>(local + (e - global));
            expected[at] =
                word < limit ? T(static_cast<Wide>(from[at]) * static_cast<Wide>(scale)) : static_cast<T>(Wide{0});
          });
        });
        PartParameter where = part_parameter(part.global_shape, part.box);
        T* to = got.get();
        uint64_t seed = kCall.seed, call = kCall.call;
        kernels().run(random_source(RandomKind::kDropout, dtype).name,
                      {&to, &from, &where, &seed, &call, &limit, &scale}, 2);
        EXPECT_EQ(std::memcmp(got.get(), expected.get(), bytes), 0) << name_of(dtype) << " " << part.box.str();
      }
    });
  }
}

TEST(StepSource, FoldsAreTheCpusInOneStageOrTwo) {
  constexpr int64_t kCount = 50;
  for (DType dtype : kNumbers) {
    for (ReduceOp reduce : {kSum, kAvg, kMax, kMin}) {
      std::vector<std::vector<std::byte>> parts;
      std::vector<const std::byte*> pointers;
      for (uint32_t p = 0; p < 7; ++p) parts.push_back(values_of(dtype, kCount, 100 + p));
      for (const auto& part : parts) pointers.push_back(part.data());
      int64_t divisor = reduce == kAvg ? 7 : 1, none = 1, count = kCount;
      const auto bytes = static_cast<size_t>(kCount * size_of(dtype));
      std::vector<std::byte> expected(bytes), at_once(bytes), in_two(bytes), sums(kCount * sizeof(double));
      fold_parts(pointers, kCount, dtype, reduce, divisor, expected.data());
      FoldList all{.num_parts = 7}, first{.num_parts = 3}, rest{.num_parts = 5};
      std::copy(pointers.begin(), pointers.end(), all.parts);
      std::copy_n(pointers.begin(), 3, first.parts);
      rest.parts[0] = sums.data();
      std::copy(pointers.begin() + 3, pointers.end(), rest.parts + 1);
      void *to_once = at_once.data(), *to_sums = sums.data(), *to_two = in_two.data();
      kernels().run(fold_source(dtype, reduce).name, {&all, &to_once, &count, &divisor}, 4);
      kernels().run(fold_source(dtype, reduce, {true, false}).name, {&first, &to_sums, &count, &none}, 4);
      kernels().run(fold_source(dtype, reduce, {false, true}).name, {&rest, &to_two, &count, &divisor}, 4);
      EXPECT_EQ(at_once, expected) << name_of(dtype) << " " << name_of(reduce);
      EXPECT_EQ(in_two, expected) << name_of(dtype) << " " << name_of(reduce);
    }
  }
}

TEST(Nvrtc, CompilesRandomValuesStepsAndFoldsForGpus) {
  const std::string problem = Nvrtc::problem();
  if (!problem.empty()) GTEST_SKIP() << problem;
  for (const std::string arch : {"80", "90"}) {
    const std::string ptx = Nvrtc::get().compile(prelude() + all_sources().text, "compute_" + arch, false);
    for (const std::string& name : all_sources().names)
      EXPECT_NE(ptx.find(".entry " + name + "("), std::string::npos) << name << ", sm_" << arch;
  }
}

TEST(Nvrtc, DoesNotContractProductsAndSums) {
  const std::string problem = Nvrtc::problem();
  if (!problem.empty()) GTEST_SKIP() << problem;
  const std::string source = prelude() + "DT_KERNEL k(f32* x, f32 b) { *x = op_add<f32>(op_mul<f32>(*x, *x), b); }";
  const std::string ptx = Nvrtc::get().compile(source, "compute_90", false);
  EXPECT_NE(ptx.find("mul."), std::string::npos);
  EXPECT_EQ(ptx.find("fma."), std::string::npos);
}

TEST(Nvrtc, GivesTheMachinesCodeToo) {
  const std::string problem = Nvrtc::problem();
  if (!problem.empty()) GTEST_SKIP() << problem;
  const std::string source = prelude() + "DT_KERNEL k(f32* x) { *x = 1; }";
  EXPECT_EQ(Nvrtc::get().compile(source, "sm_90", true).substr(1, 3), "ELF");
}

TEST(Nvrtc, SaysWhatTheCompilerSays) {
  const std::string problem = Nvrtc::problem();
  if (!problem.empty()) GTEST_SKIP() << problem;
  try {
    Nvrtc::get().compile("DT_NOTHING(", "compute_90", false);
    FAIL() << "it compiled";
  } catch (const RuntimeFault& fault) {
    EXPECT_NE(std::string(fault.what()).find("doesn't compile for compute_90"), std::string::npos) << fault.what();
    EXPECT_NE(std::string(fault.what()).find("dtorch_kernel.cu(1)"), std::string::npos) << fault.what();
  }
}

}  // namespace
}  // namespace dtorch::test
