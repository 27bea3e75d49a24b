#include "runtime/controller/handshake.h"

#include <algorithm>
#include <optional>

namespace dtorch {

namespace {

std::string name_of_node(const Hello& hello) {
  return "node " + std::to_string(hello.node) + " (" + hello.host + ", process " + std::to_string(hello.pid) + ")";
}

// "node 1", "nodes 1, 2".
std::string list_nodes(const std::vector<int32_t>& nodes) {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (size_t i = 0; i < nodes.size(); ++i) text += (i ? ", " : "") + std::to_string(nodes[i]);
  return text;
}

}  // namespace

std::vector<Hello> collect_hellos(ControlEndpoint& control, int32_t num_nodes,
                                  std::chrono::steady_clock::time_point deadline, uint64_t registry_hash) {
  std::vector<std::optional<Hello>> said(static_cast<size_t>(num_nodes));
  for (int32_t missing = num_nodes; missing > 0; --missing) {
    const auto left = deadline - std::chrono::steady_clock::now();
    std::optional<Envelope> envelope;
    if (left.count() > 0) envelope = control.inbox().pop_for(left);
    if (!envelope) {
      std::vector<int32_t> silent;
      for (int32_t node = 0; node < num_nodes; ++node) {
        if (!said[static_cast<size_t>(node)]) silent.push_back(node);
      }
      throw RuntimeFault(list_nodes(silent) + " didn't start within the deadline");
    }
    if (envelope->message.kind == MessageKind::kError) {
      throw RuntimeFault("node " + std::to_string(envelope->from) +
                         " failed at start: " + decode_error(envelope->message).message);
    }
    Hello hello = decode_hello(envelope->message);
    if (hello.node != envelope->from || hello.node < 0 || hello.node >= num_nodes) {
      throw RuntimeFault("the process at place " + std::to_string(envelope->from) + " says that it is " +
                         name_of_node(hello) + "; there are " + std::to_string(num_nodes) + " nodes");
    }
    std::optional<Hello>& place = said[static_cast<size_t>(hello.node)];
    if (place) throw RuntimeFault(name_of_node(hello) + " said hello twice");
    place = std::move(hello);
  }
  std::vector<Hello> hellos;
  for (std::optional<Hello>& hello : said) hellos.push_back(std::move(*hello));
  check_hellos_agree(hellos, registry_hash);
  return hellos;
}

void check_hellos_agree(const std::vector<Hello>& hellos, uint64_t registry_hash) {
  const Hello& first = hellos.front();
  for (const Hello& hello : hellos) {
    if (hello.registry_hash != registry_hash) {
      throw RuntimeFault(
          name_of_node(hello) +
          " has registered other operators than rank 0; register the same ones in the same order on every rank, "
          "before dtorch::run");
    }
    if (hello.versions != first.versions) {
      throw RuntimeFault(name_of_node(hello) + " runs " + hello.versions + ", " + name_of_node(first) + " runs " +
                         first.versions);
    }
  }
}

DeviceBinding bind_devices(const RuntimeOptions& options, int32_t num_nodes) {
  const int32_t num_working = num_nodes - options.spares;
  if (num_working < 1)
    throw UserError("--spares " + std::to_string(options.spares) + " leaves none of " + std::to_string(num_nodes) +
                    " nodes to work");
  DeviceBinding binding = block_binding(options.devices > 0 ? options.devices : num_working, num_working);
  binding.num_nodes = num_nodes;
  return binding;
}

Config make_config(const Route& route, const RuntimeOptions& options) {
  Config config;
  config.epoch = route.epoch;
  config.node_of_device = route.binding.node_of_device;
  config.slot_of_device = route.binding.slot_of_device;
  config.num_nodes = route.binding.num_nodes;
  config.live_nodes = route.tree.nodes();
  config.check_metadata = options.check_metadata;
  const bool is_cpu = options.device == "cpu" || options.device == "null";
  config.ordered_reductions = is_cpu ? !options.fast_reduce : options.deterministic;
  config.threads_per_device = options.threads_per_device;
  config.deadline_s = options.deadline_s;
  config.fan_out = options.fan_out;
  config.compute_streams = options.compute_streams;
  config.device_graphs = options.device_graphs;
  return config;
}

std::vector<std::string> node_names(const std::vector<Hello>& hellos) {
  std::vector<std::string> names;
  for (const Hello& hello : hellos) names.push_back(name_of_node(hello));
  return names;
}

std::string describe_hellos(const std::vector<Hello>& hellos, const DeviceBinding& binding) {
  std::string text;
  for (const Hello& hello : hellos) {
    std::string devices;
    for (int64_t device = 0; device < binding.num_devices(); ++device) {
      if (binding.node_of(device) == hello.node) devices += (devices.empty() ? "" : ", ") + std::to_string(device);
    }
    text += name_of_node(hello) + ": " + hello.versions + ", " + std::to_string(hello.num_cores) + " cores, devices [" +
            devices + "]\n";
  }
  return text;
}

}  // namespace dtorch
