// Decoding with a key/value cache.
#include <algorithm>
#include <cmath>

#include "nn/llama.h"
#include "ops/ops.h"
#include "runtime/client/gradient.h"
#include "runtime/client/graph.h"

namespace dtorch::nn {
namespace {

// One number a row, where the rows of x [B, ...] are.
Tensor row_numbers(const std::vector<int64_t>& numbers, const DeviceMesh& mesh, const Placements& batch,
                   const Where& where) {
  return from_host(HostTensor::of<int64_t>({static_cast<int64_t>(numbers.size())}, numbers),
                   {.mesh = mesh, .placements = batch}, where);
}

}  // namespace

Tensor LlamaLayer::forward_cached(const Tensor& input, const Tensor& positions, Tensor& keys, Tensor& values,
                                  Where where) const {
  SourceScope scope(where);
  NoGrad no_grad;
  const double theta = config_.rope_theta;
  const double scale = 1.0 / std::sqrt(static_cast<double>(config_.dim / config_.heads));
  const Tensor x = rms_norm(input, norm1_.use(where), config_.norm_eps, where);
  const Tensor q = rotary_at(einsum("btd,hkd->bhtk", x, wq_.use(where), where), positions, theta, where);
  const Tensor k = rotary_at(einsum("btd,hkd->bhtk", x, wk_.use(where), where), positions, theta, where);
  // The old handles are given up, so that the cache is written in place.
  keys = cache_append(std::exchange(keys, {}), k, positions, where);
  values = cache_append(std::exchange(values, {}), einsum("btd,hkd->bhtk", x, wv_.use(where), where), positions, where);
  const Tensor o = cached_attention(q, keys, values, positions, scale, where);
  const Tensor h = add(input, einsum("bhtk,dhk->btd", o, wo_.use(where), where).reduced(where), where);
  const Tensor n = rms_norm(h, norm2_.use(where), config_.norm_eps, where);
  return add(h, feed_forward(n, where).h.redistribute(h.layout(), where), where);
}

Llama::Cache Llama::make_cache(int64_t rows, int64_t places, const Placements& batch, Where where) const {
  SourceScope scope(where);
  Cache cache;
  cache.lengths.resize(static_cast<size_t>(rows), 0);
  cache.places = places;
  const Shape shape = {rows, config_.kv_heads, places, config_.dim / config_.heads};
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const TensorOptions options = sharding_.cache_options(layer, batch, config_.kv_heads);
    cache.keys.push_back(zeros(shape, options, where));
    cache.values.push_back(zeros(shape, options, where));
  }
  return cache;
}

Tensor Llama::decode(const Tensor& tokens, const std::vector<int64_t>& counts, Cache& cache, Where where) const {
  SourceScope scope(where);
  NoGrad no_grad;
  const int64_t rows = tokens.shape()[0], length = tokens.shape()[1];
  if (counts.size() != cache.lengths.size() || static_cast<int64_t>(counts.size()) != rows)
    throw UserError("[decode] tokens, counts and the cache must have one number of rows");
  for (size_t row = 0; row < counts.size(); ++row) {
    if (counts[row] < 1 || counts[row] > length)
      throw UserError("[decode] row " + std::to_string(row) + " counts " + std::to_string(counts[row]) + " tokens of " +
                      std::to_string(length));
    if (cache.lengths[row] + length > cache.places)
      throw UserError("[decode] row " + std::to_string(row) + " has " + std::to_string(cache.lengths[row]) +
                      " tokens in a cache of " + std::to_string(cache.places) + " places; " + std::to_string(length) +
                      " more don't fit");
  }
  const Placements batch = tokens.placements();
  Tensor h = tokens, positions;
  for (int64_t chunk = 0; chunk < num_chunks(); ++chunk) {
    const DeviceMesh& mesh = chunk_mesh(chunk);
    if (!positions.defined() || !(positions.mesh() == mesh)) positions = row_numbers(cache.lengths, mesh, batch, where);
    h = h.redistribute(Layout(mesh, h.placements(), h.ndim()), where);
    if (chunk == 0) h = embedding(h, embed_.use(where), where).reduced(where);
    const Span1 own = split_part(config_.layers, num_chunks(), chunk);
    for (auto i = static_cast<size_t>(own.offset); i < static_cast<size_t>(own.offset + own.size); ++i)
      h = layers_[i].forward_cached(h, positions, cache.keys[i], cache.values[i], where);
  }
  // The last token that counts of each row, picked by a product with 0 and 1.
  std::vector<double> last(static_cast<size_t>(rows * length), 0);
  for (size_t row = 0; row < counts.size(); ++row) {
    last[row * static_cast<size_t>(length) + static_cast<size_t>(counts[row] - 1)] = 1;
    cache.lengths[row] += counts[row];
  }
  const Tensor pick = from_host(HostTensor::of<double>({rows, length}, last).to(h.dtype()),
                                {.mesh = h.mesh(), .placements = batch}, where);
  h = einsum("btd,bt->bd", h, pick, where);
  return logits(rms_norm(h, norm_.use(where), config_.norm_eps, where), where);
}

}  // namespace dtorch::nn
