// Values of a sample's inputs, and the placements that the checker tries for them. Pure.
#pragma once
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/host_tensor.h"

namespace dtorch::checker {

// The same for the same seed on any machine.
HostTensor sample_value(const SampleInput& input, uint64_t seed);

// What one mesh axis may hold of an input: Replicate, Shard of every dim, Partial(sum) of numbers; with
// `every_reduction` also the other Partials of floating inputs.
std::vector<Placement> axis_choices(const SampleInput& input, bool every_reduction);

// "(S0, R)" and "(S0 P, R R)": one word an axis, one item an input.
std::string short_text(const Placement& placement);
std::string short_text(const Row& row);

}  // namespace dtorch::checker
