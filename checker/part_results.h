// What results of one-device calls on parts say about the result for the whole. Pure.
#pragma once
#include <random>
#include <vector>

#include "mesh/placement.h"
#include "runtime/client/host_tensor.h"

namespace dtorch::checker {

// Every tuple of the choices but the first of each (all Replicate), or, where there are more than `limit`, a random
// part of them and all in which at most two inputs aren't Replicate or all such have the same placement.
std::vector<std::vector<Placement>> chosen_tuples(const std::vector<std::vector<Placement>>& choices, int64_t limit,
                                                  std::mt19937_64& random);

// Whether results of these shapes can be parts of a whole by one placement.
bool are_shapes_of_parts(const std::vector<Shape>& parts, const Shape& whole);

// The placements, of Replicate, Shard and Partial(sum), by which `parts` make up `whole`, given how the inputs were
// held. Placements that fit by chance (results of few or equal values, whatever went in) don't count.
std::vector<Placement> fitting_placements(const std::vector<HostTensor>& parts, const HostTensor& whole,
                                          const std::vector<Placement>& inputs);

}  // namespace dtorch::checker
