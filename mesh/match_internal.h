// Shared by signature.cc and match_fix.cc only.
#pragma once
#include "mesh/signature.h"

namespace dtorch::internal {

// Rows of `rule`, with the row "all Replicate" first where the rule lacks it.
std::vector<Row> complete_rows(const Rule& rule, size_t num_inputs, size_t num_outputs);

// As match_rule, but the failure has only its axis and reason.
MatchResult match_rows(const Rule& rule, const std::vector<Row>& rows, std::span<const TensorMeta* const> inputs,
                       std::span<const int64_t> output_ndims, ConversionPolicy policy);

// The cheapest redistributes after which the call matches under `policy`; of several inputs' only if no single one's
// does.
std::vector<Conversion> cheapest_fix(const Rule& rule, const std::vector<Row>& rows,
                                     std::span<const TensorMeta* const> inputs, std::span<const int64_t> output_ndims,
                                     ConversionPolicy policy, int64_t failed_axis);

}  // namespace dtorch::internal
