// Where everything is in an epoch: which node has which device, which nodes are there, how messages get to them. And
// how that changes when nodes are lost. Pure functions; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "mesh/layout.h"
#include "runtime/comm/fan_out.h"
#include "runtime/graph/snapshot.h"

namespace dtorch {

struct Route {
  uint32_t epoch = 1;
  DeviceBinding binding;
  FanOut tree;  // over the live nodes
};

// Where a snapshot is kept so that `num_copies` nodes may be lost at once: the buddies of each node that has devices
// are nodes without devices (spares), else the next live ones. Those of others are kNoBuddy.
SnapshotPlaces choose_places(const Route& route, int32_t num_copies);

// The binding when only `live` nodes are left: the devices of a lost node go together, first to a spare, to a buddy of
// its if one is that, else to a buddy, else to the live node with the fewest devices. Devices of live nodes stay.
// places: of the snapshot that they begin with.
DeviceBinding rebind(const Route& route, const std::vector<int32_t>& live, const SnapshotPlaces& places);

}  // namespace dtorch
