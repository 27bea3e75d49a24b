// The orders of a ring: who computes which scores, counted.
#include "ops/nn/ring_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "mesh/layout.h"

namespace dtorch::nn_ops {
namespace {

// Rows of a piece, as ring_split cuts blocks.
int64_t rows_of(const RingPlan& plan, int64_t length, int64_t block, int64_t piece) {
  const int64_t rows = split_part(length, plan.size(), block).size;
  if (plan.pieces() == 1) return rows;
  return piece == 0 ? RingPlan::first_rows(rows) : rows - RingPlan::first_rows(rows);
}

// Scores of a causal ring that each position computes in each step.
std::vector<std::vector<int64_t>> scores(const RingPlan& plan, int64_t length) {
  std::vector<std::vector<int64_t>> by_step;
  for (int64_t step = 0; step < plan.size(); ++step) {
    std::vector<int64_t> of(static_cast<size_t>(plan.size()), 0);
    for (int64_t q_block = 0; q_block < plan.size(); ++q_block) {
      for (int64_t q_piece = 0; q_piece < plan.pieces(); ++q_piece) {
        const int64_t at = plan.home(q_block, q_piece), queries = rows_of(plan, length, q_block, q_piece);
        for (int64_t k_block = 0; k_block < plan.size(); ++k_block) {
          for (int64_t k_piece = 0; k_piece < plan.pieces(); ++k_piece) {
            if (plan.holder(k_block, k_piece, step) != at) continue;
            const int64_t keys = rows_of(plan, length, k_block, k_piece);
            switch (sees(plan.number(q_block, q_piece), plan.number(k_block, k_piece), true)) {
              case Sees::kNothing:
                break;
              case Sees::kDiagonal:
                of[static_cast<size_t>(at)] += queries * (queries + 1) / 2;
                break;
              case Sees::kAll:
                of[static_cast<size_t>(at)] += queries * keys;
                break;
            }
          }
        }
      }
    }
    by_step.push_back(of);
  }
  return by_step;
}

TEST(RingPlan, EveryQueryMeetsEveryKeyItSeesOnce) {
  for (bool is_balanced : {false, true}) {
    for (int64_t size : {1, 2, 3, 5, 8}) {
      for (int64_t length : {1, 7, 16, 61}) {
        int64_t all = 0;
        for (const auto& step : scores(RingPlan(size, is_balanced), length))
          all = std::accumulate(step.begin(), step.end(), all);
        EXPECT_EQ(all, length * (length + 1) / 2) << size << " positions, " << length << " rows";
      }
    }
  }
}

TEST(RingPlan, EveryPositionIsTheHomeOfOnePieceOfEachKind) {
  for (int64_t size : {2, 3, 4, 7}) {
    const RingPlan plan(size, true);
    for (int64_t piece : {0, 1}) {
      std::set<int64_t> homes;
      for (int64_t block = 0; block < size; ++block) homes.insert(plan.home(block, piece));
      EXPECT_EQ(homes.size(), static_cast<size_t>(size));
    }
  }
}

// A step lasts as long as the position that has most to do in it.
TEST(RingPlan, TheBalancedOrderSharesEveryStepEvenly) {
  for (int64_t size : {2, 3, 4, 8}) {
    const int64_t length = 64 * size;
    const auto longest = [&](bool is_balanced) {
      int64_t sum = 0;
      for (const auto& step : scores(RingPlan(size, is_balanced), length)) sum += *std::ranges::max_element(step);
      return sum;
    };
    for (const auto& step : scores(RingPlan(size, true), length)) {
      EXPECT_EQ(*std::ranges::min_element(step), *std::ranges::max_element(step)) << "of " << size;
    }
    EXPECT_EQ(longest(true) * size, length * (length + 1) / 2);
    // Contiguous blocks: the last position has a whole block in every step but its own.
    const int64_t block = length / size;
    EXPECT_EQ(longest(false), (size - 1) * block * block + block * (block + 1) / 2);
  }
}

// A block may have a row more than another one: one more row of scores and one more column, which is what positions
// differ by in a step.
TEST(RingPlan, UnevenBlocksShareEveryStepUpToARowAndAColumn) {
  for (int64_t size : {2, 3, 4, 8}) {
    for (int64_t length = 16 * size; length < 18 * size; ++length) {
      const int64_t block = split_part(length, size, 0).size;
      for (const auto& step : scores(RingPlan(size, true), length)) {
        EXPECT_LE(*std::ranges::max_element(step) - *std::ranges::min_element(step), 2 * block)
            << size << " positions, " << length << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace dtorch::nn_ops
