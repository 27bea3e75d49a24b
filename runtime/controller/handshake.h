// The start of a job on the controller's side: every node says Hello, the processes must agree, devices are bound,
// every node gets its Config.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "mesh/layout.h"
#include "runtime/base/options_table.h"
#include "runtime/comm/endpoint.h"
#include "runtime/controller/route.h"

namespace dtorch {

// Collects one Hello of every node, in order of node. Throws RuntimeFault that names the nodes that said nothing until
// `deadline`, or the node and host that differ: another set of operators (registry hash) or other versions than the
// rest.
std::vector<Hello> collect_hellos(ControlEndpoint& control, int32_t num_nodes,
                                  std::chrono::steady_clock::time_point deadline, uint64_t registry_hash);
// Throws as above. `hellos` isn't empty.
void check_hellos_agree(const std::vector<Hello>& hellos, uint64_t registry_hash);

// Blocks of devices (block_binding); options.devices 0: one a node. The last options.spares nodes have none. Throws
// UserError when that leaves no node.
DeviceBinding bind_devices(const RuntimeOptions& options, int32_t num_nodes);
Config make_config(const Route& route, const RuntimeOptions& options);

// "node 0 (host, process 7)", in the order of the nodes.
std::vector<std::string> node_names(const std::vector<Hello>& hellos);
// One line a node: its host, process, versions, cores and devices.
std::string describe_hellos(const std::vector<Hello>& hellos, const DeviceBinding& binding);

}  // namespace dtorch
