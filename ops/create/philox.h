// Philox 4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC
// 2011), and how its words become random values. Pure.
//
// A random call is (seed, call). Element e of the global tensor uses lane e % 4 of the block with counter e / 4, in one
// of up to four independent streams of words. So a value depends on nothing but (seed, call, e).
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace dtorch {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox_4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// One random call.
struct PhiloxCall {
  uint64_t seed = 0;
  uint64_t call = 0;

  // Words of elements 4 * block .. 4 * block + 3. stream: 0 to 3 (block numbers stay below 2^61, which leaves the bits
  // free).
  constexpr PhiloxBlock block(uint64_t block, uint32_t stream = 0) const {
    return philox_4x32_10({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32) | stream << 30,
                           static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32)},
                          {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }

  // Calls f(element, word) for elements first .. first + count - 1, a block at a time.
  template <class F>
  void for_each_word(int64_t first, int64_t count, F&& f, uint32_t stream = 0) const {
    for (int64_t e = first; e < first + count;) {
      const PhiloxBlock words = block(static_cast<uint64_t>(e) / 4, stream);
      for (size_t lane = static_cast<size_t>(e) % 4; lane < 4 && e < first + count; ++lane, ++e) f(e, words[lane]);
    }
  }
};

// The top `kBits` bits of a word, as a number in [0, 1).
template <int kBits>
constexpr float uniform_of(uint32_t word) {
  return static_cast<float>(word >> (32 - kBits)) / static_cast<float>(uint32_t{1} << kBits);
}
// 53 bits, of the words of two streams.
constexpr double uniform_of(uint32_t high, uint32_t low) {
  return (static_cast<double>(high >> 5) * 67108864.0 + static_cast<double>(low >> 6)) / 9007199254740992.0;
}

// Two standard normal values of two words (Box-Muller).
struct NormalPair {
  double first, second;
};
inline NormalPair normal_pair_of(uint32_t a, uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 1.0) / 4294967296.0));
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) / 4294967296.0);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace dtorch
