// Decoding with a key/value cache gives the logits of the whole sequence, on every layout.
#include <gtest/gtest.h>

#include "dtorch/nn.h"
#include "tests/support/cluster.h"
#include "tests/support/values.h"

namespace dtorch::test {
namespace {

const nn::LlamaConfig kConfig = {
    .dim = 24, .layers = 2, .heads = 6, .kv_heads = 2, .vocab = 11, .ffn = 16, .init_std = 0.3, .dtype = kFloat64};

class DecodeTest : public KernelTest {
 protected:
  static std::vector<std::vector<int64_t>> prompts() { return {{3, 1, 4, 1, 5}, {9}, {2, 6}}; }

  // Logits after every token from the end of each prompt on, when all rows go on with token 7, then 8.
  static std::vector<HostTensor> decoded(const nn::LlamaParallel& parallel, const Placements& batch) {
    NoGrad no_grad;
    manual_seed(3);
    const nn::Llama model(kConfig, parallel);
    const auto tokens_of = [&](const std::vector<int64_t>& all, int64_t length) {
      return from_host(HostTensor::of<int64_t>({3, length}, all), {.mesh = model.chunk_mesh(0), .placements = batch});
    };
    nn::Llama::Cache cache = model.make_cache(3, 9, batch);
    std::vector<int64_t> padded;
    std::vector<int64_t> counts;
    for (std::vector<int64_t> prompt : prompts()) {
      counts.push_back(static_cast<int64_t>(prompt.size()));
      prompt.resize(5, 10);  // what stands behind a prompt must not matter
      padded.insert(padded.end(), prompt.begin(), prompt.end());
    }
    std::vector<HostTensor> logits = {model.decode(tokens_of(padded, 5), counts, cache).to_host()};
    for (int64_t next : {7, 8}) {
      logits.push_back(model.decode(tokens_of({next, next, next}, 1), {1, 1, 1}, cache).to_host());
    }
    EXPECT_EQ(cache.lengths, (std::vector<int64_t>{7, 3, 4}));
    return logits;
  }

  // The same from the whole sequences, row by row.
  static std::vector<HostTensor> from_whole_sequences() {
    NoGrad no_grad;
    manual_seed(3);
    const nn::Llama model(kConfig);
    std::vector<HostTensor> logits;
    for (int64_t added = 0; added <= 2; ++added) {
      std::vector<double> all;
      for (std::vector<int64_t> row : prompts()) {
        for (int64_t i = 0; i < added; ++i) row.push_back(7 + i);
        const auto length = static_cast<int64_t>(row.size());
        const Tensor whole = model(from_host(HostTensor::of<int64_t>({1, length}, row)));
        const std::vector<double> last = whole.slice(1, length - 1, length).to_host().to_vector<double>();
        all.insert(all.end(), last.begin(), last.end());
      }
      logits.push_back(HostTensor::of<double>({3, kConfig.vocab}, all));
    }
    return logits;
  }
};

TEST_F(DecodeTest, GivesTheLogitsOfTheWholeSequenceOnEveryLayout) {
  const std::vector<HostTensor> want = from_whole_sequences();
  const auto expect_same = [&](const nn::LlamaParallel& parallel, const Placements& batch, const char* what) {
    const std::vector<HostTensor> got = decoded(parallel, batch);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(difference(got[i], want[i], 1e-12), "") << what << ' ' << i;
  };
  expect_same({}, {Replicate()}, "one device");
  expect_same({.mesh = cpu_mesh({2, 2}, {"dp", "tp"}), .tp = "tp"}, {Shard(0), Replicate()}, "dp 2 x tp 2");
  expect_same({.mesh = cpu_mesh({3}, {"tp"}), .tp = "tp"}, {Replicate()}, "tp 3: key/value heads whole");
  expect_same({.mesh = cpu_mesh({2, 4}, {"pp", "dp"}), .zero = "dp", .pp = "pp"}, {Shard(0)}, "pp 2 x dp 4, ZeRO 3");
}

TEST_F(DecodeTest, AFullCacheIsRefused) {
  const nn::Llama model(kConfig);
  nn::Llama::Cache cache = model.make_cache(1, 2, {Replicate()});
  const Tensor three = from_host(HostTensor::of<int64_t>({1, 3}, {1, 2, 3}));
  EXPECT_THROW(model.decode(three, {3}, cache), UserError);
  EXPECT_THROW(model.decode(three.slice(1, 0, 2), {3}, cache), UserError);
  model.decode(three.slice(1, 0, 2), {2}, cache);
  EXPECT_THROW(model.decode(three.slice(1, 0, 1), {1}, cache), UserError);
}

}  // namespace
}  // namespace dtorch::test
