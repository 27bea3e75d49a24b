// Placement signatures: an operator's rule for one mesh axis, and the matching of real layouts against it. Pure
// functions.
//
// A Rule has rows for ONE mesh axis (input placements -> output placements) over concrete dims, plus a letter for every
// dim of every operand. For each letter all operands and results carry the same ordered list of axes, so that blocks
// pair up. The row "all Replicate" is always present, and is added by the matcher where a rule lacks it. Row order
// matters: of rows that convert equally few operands the first wins.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mesh/layout.h"

namespace dtorch {

struct Row {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
  std::string str() const;  // "(Shard(0), Replicate()) -> (Shard(0))"
  friend bool operator==(const Row&, const Row&) = default;
};

// Letters of one operand's dims. kNoLetter: the dim never pairs with another operand's (broadcast size 1, private dim).
using Letters = InlineVector<int16_t, kMaxDims>;
inline constexpr int16_t kNoLetter = 0;

struct Rule {
  std::vector<Row> rows;
  std::vector<Letters> input_letters;   // one an input
  std::vector<Letters> output_letters;  // one an output
};

// What to do to one input before the operator runs: redistribute it to `layout`.
struct Conversion {
  int32_t input = 0;
  Layout layout;
  friend bool operator==(const Conversion&, const Conversion&) = default;
};

struct Match {
  std::vector<Layout> output_layouts;
  std::vector<Conversion> conversions;
};

// Which conversions a match may insert.
//  kNone:  none (set_implicit_redistribution(false))
//  kLocal: Replicate -> Shard and Replicate -> Partial(sum or avg): never moves data between devices
//  kReduce: as kLocal, and a Partial input may be reduced to Replicate or Shard (used in backward for pending
//           gradients); of the rows so reached the one that reduces fewest bytes wins, then as kLocal
enum class ConversionPolicy : uint8_t { kNone, kLocal, kReduce };

struct MatchFailure {
  int64_t axis = -1;                    // the mesh axis without a row; -1: an order mismatch across axes
  std::string reason;                   // one sentence
  std::vector<std::string> legal_rows;  // printed rows of the rule
  std::vector<Conversion> fix;          // cheapest redistributes that make the call legal
};

struct MatchResult {
  std::optional<Match> match;
  MatchFailure failure;  // valid when !match
};

// inputs: metas on ONE mesh. output_ndims: one an output. Never throws for illegal placements.
MatchResult match_rule(const Rule& rule, std::span<const TensorMeta* const> inputs,
                       std::span<const int64_t> output_ndims, ConversionPolicy policy);

// Helpers that build rules. They let Partial(sum) and Partial(avg) pass where the operator is linear, max and min only
// where data is merely moved.

enum class Linear : uint8_t {
  kNo,       // no Partial row
  kInAll,    // f(sum a_i, sum b_i) = sum f(a_i, b_i): all inputs Partial together (add, sub, neg, cast float->float)
  kInEach,   // multilinear: any one input Partial, the others Replicate (mul, matmul)
  kInFirst,  // only input 0 may be Partial, the others Replicate (div, mul by number)
};

// Elementwise with broadcasting: every input aligned to the right with the output. Also unary operators.
Rule elementwise_rule(std::span<const Shape> inputs, const Shape& output, Linear linear, int num_outputs = 1);
// "mk,kn->mn": sharding a contracted letter gives Partial(sum). Every dim has a letter ("..." isn't supported), at most
// once in an operand.
Rule einsum_rule(const std::string& formula, bool linear = true);
// Sharding a dim of `dims`, which are reduced, gives Partial(reduce), or has no row when reduce is nullopt. keepdim
// leaves them with size 1, else they go away.
Rule reduce_rule(int64_t ndim, std::span<const int64_t> dims, bool keepdim, std::optional<ReduceOp> reduce,
                 Linear linear);
// Same placements in and out for all dims but `blocked` ones (softmax, norms). Extra inputs follow the first; their
// letters are the first input's dims, counted from 1 (a norm's weight over the last dim of 3: {3}).
Rule pointwise_except_rule(int64_t ndim, std::span<const int64_t> blocked, Linear linear,
                           std::span<const Letters> extra_inputs = {});
// A permutation of dims: output dim i is input dim perm[i].
Rule permute_rule(std::span<const int64_t> perm);

// Views (reshape, flatten): sees all axes at once; legal only if every device's box is, element for element in order, a
// box of the new shape's layout. Partial passes through. Of several legal targets the leftmost dims win. nullopt when
// it would cut a shard; `reason` (may be null) then says which and why.
std::optional<Layout> view_layout(const TensorMeta& input, const Shape& new_shape, std::string* reason);

}  // namespace dtorch
