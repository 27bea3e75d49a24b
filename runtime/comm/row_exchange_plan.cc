// Who exchanges rows with whom; see row_exchange.h.
#include "runtime/comm/row_exchange.h"

namespace dtorch {

using Pair = RowExchangePlan::Pair;

std::shared_ptr<const RowExchangePlan> plan_row_exchange(const DeviceMesh& mesh, int64_t axis, int64_t width,
                                                         DType dtype, const DeviceBinding& binding, int32_t node) {
  auto plan = std::make_shared<RowExchangePlan>();
  plan->width = width;
  plan->dtype = dtype;
  plan->row_bytes = static_cast<size_t>(width * size_of(dtype));
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    const int64_t device = mesh.devices()[static_cast<size_t>(index)];
    Shape coordinate = mesh.coordinate_of_index(index);
    const auto position = static_cast<size_t>(coordinate[axis]);
    std::vector<int64_t> line;
    for (coordinate[axis] = 0; coordinate[axis] < mesh.shape()[axis]; ++coordinate[axis])
      line.push_back(mesh.devices()[static_cast<size_t>(mesh.index_of_coordinate(coordinate))]);
    const bool is_here = binding.node_of(device) == node;
    for (size_t to = 0; to < line.size(); ++to) {
      const Pair pair{device, line[to], position, to};
      const int32_t other = binding.node_of(is_here ? pair.to : pair.from);
      if (other == node) continue;
      if (is_here)
        plan->sends[other].push_back(pair);
      else if (binding.node_of(pair.to) == node)
        plan->receives[other].push_back(pair);
    }
    if (!is_here) continue;
    plan->local_devices.push_back(device);
    plan->lines.push_back({device, std::move(line)});
  }
  return plan;
}

}  // namespace dtorch
