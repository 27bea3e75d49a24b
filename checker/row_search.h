// Search for the rows of one mesh axis that need no communication, by brute force on one device: inputs are cut into
// parts (or taken apart into pending sums), the sample's call runs on each part alone, as one-device calls, and what
// comes out is compared with parts of the result for the whole. It asks no rule, so that it finds what a rule has
// forgotten. Runs on the client's thread, in a Graph of its own.
#pragma once
#include <string>
#include <vector>

#include "mesh/signature.h"
#include "ops/def/operator_def.h"
#include "runtime/client/client.h"
#include "runtime/client/host_tensor.h"

namespace dtorch::checker {

struct FoundRow {
  Row row;
  size_t group = 0;             // of samples with equal ndims, operators and attributes
  std::vector<size_t> samples;  // on which it was tried and holds
};

// Rows that hold on axes of 2 and 3 parts, with two values each, on every sample of a group in which their dims have at
// least 2 elements. The row "all Replicate" isn't among them. Where a group has more than max_tuples tuples of
// placements: a seeded part of them, and all with few kinds of placements.
std::vector<FoundRow> find_rows(Client& client, const std::vector<Sample>& samples, uint64_t seed, int64_t max_tuples);

// Parts that add up to `value`, none of which says anything about it.
std::vector<HostTensor> random_parts(const HostTensor& value, int64_t parts, uint64_t seed);

}  // namespace dtorch::checker
