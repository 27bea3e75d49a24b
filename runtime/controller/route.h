// Where everything is in an epoch: which node has which device, which nodes are there, how messages get to them. And
// how that changes when nodes are lost. Pure functions; any thread.
#pragma once
#include <cstdint>
#include <vector>

#include "mesh/layout.h"
#include "runtime/comm/fan_out.h"

namespace dtorch {

struct Route {
  uint32_t epoch = 1;
  DeviceBinding binding;
  FanOut tree;  // over the live nodes
};

// Whom each node sends copies of its boxes to, by node; kNoBuddy of nodes without devices or without anybody else. A
// node without devices (a spare) if there is one, else the next live one.
std::vector<int32_t> choose_buddies(const Route& route);

// The binding when only `live` nodes are left: the devices of a lost node go together, first to a spare, to its buddy
// if that is one, else to its buddy, else to the live node with the fewest devices. Devices of live nodes stay.
DeviceBinding rebind(const Route& route, const std::vector<int32_t>& live, const std::vector<int32_t>& buddies);

}  // namespace dtorch
