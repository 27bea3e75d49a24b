// A training on 2 nodes gives the same bits on one compute stream a device and on several, with the passes that move
// and join communication and without, replayed and not.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "dtorch/dtorch.h"
#include "dtorch/nn.h"
#include "runtime/worker/prepared_check.h"

namespace dtorch {
namespace {

using Bits = std::vector<std::byte>;

Bits bits_of(const std::vector<std::string>& options, const std::function<Bits(Client&)>& program) {
  std::vector<std::string> words = {"program", "--devices", "4", "--nodes", "2"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  Bits bits;
  const int code = run(static_cast<int>(words.size()), pointers.data(), [&](Client& client) {
    client.manual_seed(7);
    bits = program(client);
  });
  EXPECT_EQ(code, 0);
  return bits;
}

void keep(Bits& bits, const Tensor& tensor) {
  const HostTensor host = tensor.to_host();
  const std::byte* data = host.shared_bytes()->data();
  bits.insert(bits.end(), data, data + host.num_bytes());
}

// A small Llama, data parallel on one axis and tensor parallel on the other.
Bits training(Client&) {
  constexpr int64_t kLength = 16, kBatch = 4, kVocab = 64;
  const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
  const nn::Llama model({.dim = 16, .layers = 2, .heads = 2, .vocab = kVocab, .ffn = 32}, {.mesh = mesh});
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  Bits bits;
  for (int64_t step = 0; step < 6; ++step) {
    const auto batch = [&](int64_t shift) {
      std::vector<int64_t> tokens;
      for (int64_t i = shift; i < kBatch * kLength + shift; ++i) tokens.push_back((i * 31 + step * 7) % kVocab);
      return from_host(HostTensor::of<int64_t>({kBatch, kLength}, tokens),
                       {.mesh = mesh, .placements = {Shard(0), Replicate()}});
    };
    const Tensor loss = model.loss(batch(0), batch(1));
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    keep(bits, loss);
  }
  for (const nn::Parameter& parameter : model.parameters()) keep(bits, parameter.value());
  return bits;
}

class StreamsAndOverlap : public testing::Test {
 protected:
  void SetUp() override {
    if (DTORCH_WITH_KERNELS == 0) GTEST_SKIP() << "this build has no kernels";
    set_check_prepared(true);
  }
  void TearDown() override { set_check_prepared(false); }
};

TEST_F(StreamsAndOverlap, ATrainingGivesTheSameBits) {
  const Bits expected = bits_of({"--passes", "none", "--templates", "off"}, training);
  ASSERT_FALSE(expected.empty());
  const std::vector<std::vector<std::string>> jobs = {
      {},
      {"--compute-streams", "2"},
      {"--compute-streams", "3", "--templates", "off"},
      {"--passes=-early_reductions,-bucketing"},
      {"--passes", "early_reductions"},
      {"--passes", "bucketing", "--templates", "off"},
      {"--passes", "all", "--compute-streams", "2"},
  };
  for (const std::vector<std::string>& options : jobs) {
    std::string named;
    for (const std::string& word : options) named += word + " ";
    SCOPED_TRACE(named);
    EXPECT_EQ(bits_of(options, training), expected);
  }
}

}  // namespace
}  // namespace dtorch
