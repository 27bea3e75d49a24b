// Philox 4x32-10 against the known answers that its authors publish with Random123 (kat_vectors), and how words become
// values.
#include "ops/create/philox.h"

#include <gtest/gtest.h>

#include <vector>

namespace dtorch {
namespace {

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox_4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox_4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, GivesAnElementTheSameWordWhereverAStretchStarts) {
  const PhiloxCall call{42, 7};
  std::vector<uint32_t> whole;
  call.for_each_word(0, 23, [&](int64_t, uint32_t word) { whole.push_back(word); });
  ASSERT_EQ(whole.size(), 23u);
  for (int64_t first = 0; first < 23; ++first) {
    int64_t expected = first;
    call.for_each_word(first, 23 - first, [&](int64_t e, uint32_t word) {
      EXPECT_EQ(e, expected++);
      EXPECT_EQ(word, whole[static_cast<size_t>(e)]);
    });
    EXPECT_EQ(expected, 23);
  }
}

TEST(Philox, SeparatesSeedsCallsStreamsAndBlocks) {
  const std::vector<PhiloxBlock> blocks = {PhiloxCall{1, 0}.block(0),
                                           PhiloxCall{2, 0}.block(0),
                                           PhiloxCall{1, 1}.block(0),
                                           PhiloxCall{uint64_t{1} << 32, 0}.block(0),
                                           PhiloxCall{1, 0}.block(1),
                                           PhiloxCall{1, 0}.block(0, 1),
                                           PhiloxCall{1, 0}.block(uint64_t{1} << 32)};
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t j = i + 1; j < blocks.size(); ++j) EXPECT_NE(blocks[i], blocks[j]) << i << " and " << j;
  }
}

TEST(Philox, KeepsUniformValuesBelowOne) {
  EXPECT_EQ(uniform_of<24>(0), 0.0f);
  EXPECT_LT(uniform_of<24>(0xffffffff), 1.0f);
  EXPECT_EQ(uniform_of<8>(0xffffffff), 1.0f - 1.0f / 256.0f);
  EXPECT_LT(uniform_of(0xffffffffu, 0xffffffffu), 1.0);
  EXPECT_EQ(uniform_of(0x80000000u, 0u), 0.5);
}

TEST(Philox, MakesNormalValuesOfMeanZeroAndVarianceOne) {
  const PhiloxCall call{3, 4};
  double sum = 0, squares = 0;
  constexpr int kBlocks = 50000;
  for (int block = 0; block < kBlocks; ++block) {
    const PhiloxBlock words = call.block(static_cast<uint64_t>(block));
    for (const NormalPair& pair : {normal_pair_of(words[0], words[1]), normal_pair_of(words[2], words[3])}) {
      sum += pair.first + pair.second;
      squares += pair.first * pair.first + pair.second * pair.second;
    }
  }
  EXPECT_NEAR(sum / (4 * kBlocks), 0.0, 0.01);
  EXPECT_NEAR(squares / (4 * kBlocks), 1.0, 0.02);
  EXPECT_TRUE(std::isfinite(normal_pair_of(0, 0).first));
}

}  // namespace
}  // namespace dtorch
