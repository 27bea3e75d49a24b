// What a redistribution must move at least, and the table of all pairs that docs/redistribution.md shows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mesh/layout.h"

namespace dtorch::test {

// Elements that devices must receive from other devices at least, summed over devices. An element of which n parts are
// reduced, wanted by d devices, takes n - 1 receives until some device has its value, and one for every further device;
// one more when none of the d holds a part. So P -> R on n devices costs 2 (n - 1) / n of the tensor a device, P -> S
// (n - 1) / n. What is copied costs what each device lacks. Counts element by element: for small shapes.
int64_t least_elements(const Shape& global_shape, const Layout& from, const Layout& to);

struct PairCost {
  Layout from, to;
  int64_t moved = 0;  // elements
  int64_t least = 0;
  double ratio() const { return moved == least ? 1.0 : static_cast<double>(moved) / static_cast<double>(least); }
};
// Every pair of layouts with the placements Replicate, Shard(0), Shard(1), Partial(sum) and every order of axes.
std::vector<PairCost> all_pair_costs(const DeviceMesh& mesh, const Shape& global_shape);

// The meshes of the table: one axis and two axes on 4 and 8 devices.
std::vector<DeviceMesh> table_meshes();
inline Shape table_shape() { return {16, 16}; }

// docs/redistribution.md.
std::string redistribution_table();

}  // namespace dtorch::test
