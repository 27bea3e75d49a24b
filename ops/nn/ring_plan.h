// Where the rows of a sequence are in ring attention, step by step. Pure. Private to this room and its tests.
//
// The sequence is cut into as many blocks as the ring has positions, and in the balanced order each block into two
// pieces. Query rows stay where they are computed; keys go on by one position a step. With a causal mask a row sees
// only the keys before it, so that blocks in their own order leave the most work to the last position. In the balanced
// order position i computes pieces i and 2 size - 1 - i of the 2 size pieces: what one of the two sees less the other
// sees more, in every step (as in Llama 3's context parallelism; Brandon et al. 2023 balance by stripes).
#pragma once
#include <cstdint>

namespace dtorch::nn_ops {

// What queries see of keys, both a piece of the sequence.
enum class Sees : uint8_t { kNothing, kDiagonal, kAll };
// Pieces are the same or apart, so that a causal mask is none, the triangle, or everything.
inline Sees sees(int64_t query_piece, int64_t key_piece, bool is_causal) {
  if (!is_causal || key_piece < query_piece) return Sees::kAll;
  return key_piece == query_piece ? Sees::kDiagonal : Sees::kNothing;
}

class RingPlan {
 public:
  RingPlan(int64_t size, bool is_balanced) : size_(size), pieces_(is_balanced ? 2 : 1) {}
  int64_t size() const { return size_; }
  int64_t pieces() const { return pieces_; }  // of a block
  // Number along the sequence of piece 0 or 1 of a block.
  int64_t number(int64_t block, int64_t piece) const { return block * pieces_ + piece; }
  // Position that computes the queries of a piece, and has its keys at step 0.
  int64_t home(int64_t block, int64_t piece) const {
    const int64_t at = number(block, piece);
    return at < size_ ? at : 2 * size_ - 1 - at;
  }
  // Position that has its keys at a step.
  int64_t holder(int64_t block, int64_t piece, int64_t step) const { return (home(block, piece) + step) % size_; }
  // Rows of piece 0 of a block with so many; piece 1 has the others.
  static int64_t first_rows(int64_t rows) { return (rows + 1) / 2; }

 private:
  int64_t size_, pieces_;
};

}  // namespace dtorch::nn_ops
