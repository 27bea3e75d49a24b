// Fusion of elementwise operators with the real kernels: the same bits as without, whatever the operator, the size, the
// dtype and where the tensors lie, with templates and without; and less of what it is for: kernels and memory.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"
#include "runtime/worker/prepared_check.h"

namespace dtorch {
namespace {

using Bits = std::vector<std::vector<std::byte>>;

struct Outcome {
  Bits bits;
  ClientStats stats;
};

Outcome outcome_of(const std::string& passes, bool templates, const std::function<Bits(Client&)>& program) {
  std::vector<std::string> words = {
      "program", "--devices", "3", "--nodes", "2", "--passes", passes, "--templates", templates ? "on" : "off"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  Outcome outcome;
  const int code = run(static_cast<int>(words.size()), pointers.data(), [&](Client& client) {
    NoGrad no_grad;
    client.manual_seed(7);
    outcome.bits = program(client);
    client.synchronize();
    outcome.stats = client.stats();
  });
  EXPECT_EQ(code, 0);
  return outcome;
}

constexpr const char* kWithout = "liveness";
constexpr const char* kWith = "liveness,fusion";

void keep(Bits& bits, const Tensor& tensor) {
  const HostTensor host = tensor.to_host();
  const std::byte* data = host.shared_bytes()->data();
  bits.emplace_back(data, data + host.num_bytes());
}

class Fusion : public testing::Test {
 protected:
  void SetUp() override {
    if (DTORCH_WITH_KERNELS == 0) GTEST_SKIP() << "this build has no kernels";
    set_check_prepared(true);
  }
  void TearDown() override { set_check_prepared(false); }
};

using Unary = std::function<Tensor(const Tensor&)>;
#define DTORCH_UNARY(name) [](const Tensor& x) { return name(x); }
std::vector<Unary> functions() {
  return {DTORCH_UNARY(neg),
          DTORCH_UNARY(exp),
          DTORCH_UNARY(log),
          DTORCH_UNARY(sqrt),
          DTORCH_UNARY(rsqrt),
          DTORCH_UNARY(tanh),
          DTORCH_UNARY(sigmoid),
          DTORCH_UNARY(relu),
          DTORCH_UNARY(silu),
          DTORCH_UNARY(abs),
          DTORCH_UNARY(sin),
          DTORCH_UNARY(cos),
          DTORCH_UNARY(erf),
          DTORCH_UNARY(reciprocal),
          DTORCH_UNARY(square),
          DTORCH_UNARY(sign),
          DTORCH_UNARY(floor),
          DTORCH_UNARY(ceil),
          DTORCH_UNARY(round),
          DTORCH_UNARY(logical_not),
          [](const Tensor& x) { return sub(1.5, x); },
          [](const Tensor& x) { return div(1.5, x); },
          [](const Tensor& x) { return pow(x, x); },
          [](const Tensor& x) { return minimum(x, neg(x)); },
          [](const Tensor& x) { return maximum(x, neg(x)); },
          [](const Tensor& x) { return lt(x, 1); },
          [](const Tensor& x) { return logical_and(gt(x, 0.5), ne(x, 1)); },
          [](const Tensor& x) { return where(ge(x, 1), x, 0.25); },
          [](const Tensor& x) { return where(le(x, 1), x, square(x)); },
          [](const Tensor& x) { return to(x, kInt32); },
          [](const Tensor& x) { return to(to(x, kFloat64), kFloat32); }};
}
#undef DTORCH_UNARY

// Every function between others; what the middle gives is kept as well.
Bits every_function(int64_t size, DType dtype, const Placement& placement) {
  const TensorOptions options{.mesh = init_device_mesh("cpu", {3}), .placements = {placement}, .dtype = dtype};
  const Tensor x = rand({size}, options) * 2;
  const Tensor one = full({1}, 0.75, {.mesh = options.mesh, .placements = {Replicate()}, .dtype = dtype});
  Bits bits;
  for (const Unary& function : functions()) {
    const Tensor y = function((x + 0.125) * one);
    Tensor z = y.dtype() == kBool ? where(y, x, one * x) : to(y, dtype) * x;
    z = (z - x) * z;
    keep(bits, y);
    keep(bits, z);
  }
  return bits;
}

TEST_F(Fusion, EveryElementwiseOperatorGivesTheSameBitsOnEverySize) {
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    for (int64_t size : {1, 3, 47, 4096, 12288, 12289, 40001}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(size));
      const auto program = [&](Client&) { return every_function(size, dtype, Shard(0)); };
      const Outcome with = outcome_of(kWith, true, program);
      ASSERT_EQ(with.bits, outcome_of(kWithout, true, program).bits);
    }
  }
}

// y after `turns` turns of a chain with a value that is kept, one that dies on the way, and a scalar that changes.
Bits loop(Client& client, int turns) {
  const TensorOptions options{.mesh = init_device_mesh("cpu", {3}), .placements = {Shard(0)}};
  const Tensor b = rand({3000}, options);
  Tensor y = rand({3000}, options), kept;
  Bits bits;
  for (int turn = 0; turn < turns; ++turn) {
    kept = y * b;
    const Tensor t = kept + 0.5 * turn;
    y = tanh(t - y) * b + kept;
    y = sigmoid(y) - t;
    if (turn % 7 == 3) keep(bits, kept);
    if (turn % 5 == 4) client.flush();
    if (turn == turns / 2) y = y + b;  // once
  }
  keep(bits, y);
  return bits;
}

TEST_F(Fusion, LoopsGiveTheSameBitsWithTemplatesAndWithout) {
  const auto program = [](Client& client) { return loop(client, 60); };
  const Bits expected = outcome_of("none", false, program).bits;
  for (const char* passes :
       {kWith, kWithout, "fusion", "-fusion", "repeated_operators,dead_operators,liveness,fusion"}) {
    for (bool templates : {true, false}) {
      SCOPED_TRACE(std::string(passes) + (templates ? " templates" : ""));
      EXPECT_EQ(outcome_of(passes, templates, program).bits, expected);
    }
  }
  EXPECT_GT(outcome_of(kWith, true, program).stats.template_operators, 100);
}

TEST_F(Fusion, AChainIsFewKernelsAndNeedsNoMemoryInBetween) {
  constexpr int kSteps = 20, kChains = 20;
  constexpr int64_t kCalls = 3 * kSteps;
  constexpr int64_t kSize = 3 * (int64_t{1} << 16);
  const auto program = [&](Client& client) {
    const TensorOptions options{.mesh = init_device_mesh("cpu", {3}), .placements = {Shard(0)}};
    Tensor y = rand({kSize}, options);
    const Tensor b = rand({kSize}, options);
    for (int chain = 0; chain < kChains; ++chain) {
      const Tensor start = y;  // kept, so that the chain needs memory
      for (int i = 0; i < kSteps; ++i) y = (y + b) * (y * 0.25);
      client.synchronize();
      if (chain == kChains / 2) client.reset_peak_bytes();
    }
    Bits bits;
    keep(bits, y);
    return bits;
  };
  set_check_prepared(false);  // it counts kernels
  for (bool templates : {true, false}) {
    const Outcome with = outcome_of(kWith, templates, program), without = outcome_of(kWithout, templates, program);
    EXPECT_EQ(with.bits, without.bits);
    EXPECT_GE(without.stats.kernels_run, 3 * kCalls * kChains);  // on three devices
    EXPECT_LE(with.stats.kernels_run, without.stats.kernels_run / 4) << "pieces end where nodes would idle";
    if (!templates) continue;
    // y, b and the result; without fusion two results in between.
    const int64_t bytes = kSize / 3 * 4;
    EXPECT_LT(with.stats.peak_bytes_per_device[0], 4 * bytes);
    EXPECT_GE(without.stats.peak_bytes_per_device[0], 4 * bytes);
  }
}

TEST_F(Fusion, AFailureNamesTheCallAndItsLine) {
  const auto program = [](Client& client) {
    const Tensor mask = zeros({6}, {.dtype = kBool}), x = ones({6}, {.dtype = kInt32});
    for (int turn = 0; turn < 4; ++turn) {
      const Tensor a = x + x;
      const uint32_t line = __LINE__ + 1;
      const Tensor b = where(mask, a, int64_t{1} << 40);  // more than an int32
      const Tensor c = b * a;
      const Tensor d = a * x;
      try {
        (void)c.to_host();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const RuntimeFault& fault) {
        EXPECT_NE(std::string(fault.what()).find("fusion_test.cc:" + std::to_string(line)), std::string::npos)
            << fault.what();
        EXPECT_NE(std::string(fault.what()).find("[where]"), std::string::npos) << fault.what();
      }
      EXPECT_EQ(d.to_host().to_vector<int32_t>(), std::vector<int32_t>(6, 2));
    }
    client.synchronize();
    return Bits();
  };
  set_check_prepared(false);
  for (bool templates : {true, false}) outcome_of(kWith, templates, program);
}

// One element has many shapes; the memory of one isn't that of another.
TEST_F(Fusion, OneElementOfAnotherRankStaysWhatItIs) {
  const auto program = [](Client& client) {
    const TensorOptions options{.mesh = init_device_mesh("cpu", {client.num_devices()})};
    Bits bits;
    for (const Shape& shape : {Shape{1}, Shape{1, 1}}) {
      const Tensor x = randn({3}, options), w = randn(shape, options);
      keep(bits, relu(sum(x) + w));
      keep(bits, relu(w * sum(x)) + w);
    }
    return bits;
  };
  for (bool templates : {false, true}) {
    EXPECT_EQ(outcome_of(kWith, templates, program).bits, outcome_of(kWithout, templates, program).bits);
  }
}

}  // namespace
}  // namespace dtorch
