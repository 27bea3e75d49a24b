#include "runtime/worker/lowered_spec.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "ops/def/moves_data.h"
#include "ops/def/row_exchange.h"

namespace dtorch {
namespace {

bool holds(const TensorMeta& meta, int64_t device) { return meta.layout.mesh().index_of(device) >= 0; }

Box part_of(const TensorMeta& meta, int64_t device) {
  if (holds(meta, device)) return meta.layout.box_of(meta.global_shape, device);
  Shape nothing(meta.global_shape.ndim(), 0);
  return {nothing, nothing};
}

// Only a user-facing function and its samples: what it records are other operators. (That the kernel is missing says
// nothing alone: builds without kernels have none.)
bool is_composition(const OperatorDef& def) {
  return def.lowering == Lowering::kKernel && def.infer == nullptr && def.kernel == nullptr;
}

// Operators without outputs run where their inputs are.
bool takes_part(const OperatorSpec& spec, int64_t device) {
  const std::vector<const TensorMeta*>& metas = spec.outputs.empty() ? spec.inputs : spec.outputs;
  for (const TensorMeta* meta : metas) {
    if (holds(*meta, device)) return true;
  }
  return false;
}

bool is_first_holder(const TensorMeta& meta, int64_t device) {
  int64_t own_index = meta.layout.mesh().index_of(device);
  Box own = meta.layout.box_at(meta.global_shape, own_index);
  for (int64_t index = 0; index < own_index; ++index) {
    if (meta.layout.box_at(meta.global_shape, index) == own) return false;
  }
  return true;
}

// Every operand is on this device, and there are as many as a call of a prepared kernel takes.
bool may_be_prepared(const LocalSpec& local) {
  return local.local.output_boxes.size() == 1 && local.holds_input.size() <= LocalSpec::kMaxPreparedInputs &&
         std::ranges::find(local.holds_input, false) == local.holds_input.end();
}

void lower_kernel(const LoweredSpec& lowered, DeviceBackend& backend, TensorPool& pool, LocalSpec& local) {
  local.action = Action::kKernel;
  local.kernel = backend.kernel_of(*lowered.def);
  local.uses_feed = lowered.uses_feed;
  DTORCH_CHECK(local.kernel != nullptr, std::string("operator '") + lowered.def->name + "' has no kernel");
  if (!may_be_prepared(local)) return;
  local.may_fuse = backend.library() != nullptr && lowered.def->elementwise;
  local.prepared = backend.prepare(*lowered.def, local.local);
  if (!local.prepared) return;
  local.on_memory = local.prepared->on_memory();
  local.output_kind = &pool.kind_of(local.local.output_boxes[0].size, lowered.spec.outputs[0]->dtype);
}

void lower_transfer(const LoweredSpec& lowered, const RedistributePlan& plan, const NodeContext& node,
                    LocalSpec& local) {
  bool is_source = local.holds_input[0];
  bool is_destination = holds(*lowered.spec.outputs[0], local.local.device);
  switch (plan.kind) {
    case PlanKind::kNothing:
      if (is_destination) local.action = Action::kAlias;
      break;
    case PlanKind::kLocal:
      if (is_destination) {
        local.action = Action::kLocal;
        local.move = LocalMove(plan, local.local.device, node.binding);
      }
      break;
    case PlanKind::kTransfer:
      if (is_source || is_destination) local.action = Action::kMove;
      break;
  }
}

void lower_read(const LoweredSpec& lowered, LocalSpec& local) {
  if (!local.holds_input[0]) return;
  local.action = Action::kRead;
  local.sends_box = is_first_holder(*lowered.spec.inputs[0], local.local.device);
}

// pool: of the stream that it is for.
LocalSpec lower_for(const LoweredSpec& lowered, const RedistributePlan& plan, int64_t device, TensorPool& pool,
                    const std::shared_ptr<const void>& attributes, const NodeContext& node, DeviceBackend& backend) {
  LocalSpec local;
  local.local.op = lowered.spec.op;
  local.local.spec = &lowered.spec;
  local.local.attributes = attributes;
  local.local.device = device;
  local.has_effect = lowered.def->klass == OperatorClass::kEffect;
  local.ragged_inputs = lowered.def->ragged_inputs;
  local.ragged_outputs = lowered.def->ragged_outputs;
  for (const TensorMeta* meta : lowered.spec.inputs) {
    local.holds_input.push_back(holds(*meta, device));
    local.local.input_boxes.push_back(part_of(*meta, device));
  }
  for (const TensorMeta* meta : lowered.spec.outputs) local.local.output_boxes.push_back(part_of(*meta, device));
  switch (lowered.def->lowering) {
    case Lowering::kKernel:
      if (takes_part(lowered.spec, device)) lower_kernel(lowered, backend, pool, local);
      break;
    case Lowering::kTransfer:
      lower_transfer(lowered, plan, node, local);
      break;
    case Lowering::kExchange:
      if (local.holds_input[0]) local.action = Action::kMove;
      break;
    case Lowering::kRead:
      lower_read(lowered, local);
      break;
  }
  return local;
}

// How the devices of this node move the data by collectives, where they can.
void lower_collectives(const RedistributePlan& plan, const std::vector<int64_t>& local_devices, NodeContext& node,
                       LoweredSpec& lowered) {
  if (!node.communicators) return;
  const TensorMeta &source = *lowered.spec.inputs[0], &destination = *lowered.spec.outputs[0];
  const std::vector<int64_t> devices = devices_of(source.layout.mesh(), destination.layout.mesh());
  const std::vector<int32_t> accelerators(static_cast<size_t>(node.binding.num_nodes), node.num_accelerators);
  if (!have_own_accelerators(devices, node.binding, accelerators)) return;
  const CollectiveRules rules{.ordered_folds = node.config.ordered_reductions,
                              .can_reduce = [&](DType dtype, ReduceOp reduce) {
                                return node.communicators->factory().can_reduce(dtype, reduce);
                              }};
  std::set<std::vector<int64_t>> groups;
  for (size_t i = 0; i < local_devices.size(); ++i) {
    if (lowered.devices[i * node.num_streams()].action != Action::kMove) continue;
    const auto steps = std::make_shared<const DevicePlan>(
        plan_for_device(plan, source, destination, local_devices[i], node.binding, rules));
    for (const DevicePlan::Step& step : steps->steps) groups.insert(step.group);
    for (size_t stream = 0; stream < node.num_streams(); ++stream)
      lowered.devices[i * node.num_streams() + stream].collectives = steps;
  }
  lowered.groups.assign(groups.begin(), groups.end());
}

}  // namespace

std::unique_ptr<const LoweredSpec> lower_spec(OperatorSpec spec, const std::vector<int64_t>& local_devices,
                                              NodeContext& node, DeviceBackend& backend) {
  const OperatorRegistry& registry = OperatorRegistry::global();
  auto lowered = std::make_unique<LoweredSpec>();
  lowered->spec = std::move(spec);
  lowered->def = &registry.at(lowered->spec.op);
  if (is_composition(*lowered->def)) {
    throw DecodeError(std::string("operator '") + lowered->def->name +
                      "' is a composition of other operators; no kernel belongs to it, so that no piece may hold it");
  }
  lowered->uses_feed = std::string_view(lowered->def->name) == "from_host";
  std::shared_ptr<const void> attributes = lowered->def->attributes.decode(lowered->spec.attributes);

  RedistributePlan plan;
  if (lowered->def->lowering == Lowering::kTransfer) {
    DTORCH_CHECK(lowered->spec.inputs.size() == 1 && lowered->spec.outputs.size() == 1,
                 "a transfer has one input and one output");
    plan = make_redistribute_plan(lowered->spec.inputs[0], lowered->spec.outputs[0]);
    lowered->moves = moves_data(lowered->spec, registry);
  }
  if (lowered->def->lowering == Lowering::kRead) {
    DTORCH_CHECK(lowered->spec.inputs.size() == 1 && lowered->spec.outputs.empty(),
                 "a read has one input and no output");
  }
  if (lowered->def->lowering == Lowering::kExchange) {
    const int64_t axis = exchange_axis(lowered->spec);
    const TensorMeta& rows = *lowered->spec.inputs[0];
    lowered->exchange =
        plan_row_exchange(rows.layout.mesh(), axis, rows.global_shape.back(), rows.dtype, node.binding, node.node);
    lowered->moves = true;
  } else if (lowered->moves) {
    lowered->plan = lower_plan(plan, node.binding, node.node,
                               node.config.ordered_reductions ? FoldOrder::kMesh : FoldOrder::kByNode);
  }
  lowered->takes_part = lowered->moves && !(lowered->move_sources().empty() && lowered->move_destinations().empty());
  lowered->devices.reserve(local_devices.size() * node.num_streams());
  for (size_t i = 0; i < local_devices.size(); ++i) {
    for (TensorPool& pool : node.devices[i].pools)
      lowered->devices.push_back(lower_for(*lowered, plan, local_devices[i], pool, attributes, node, backend));
    if (lowered->devices.back().action == Action::kKernel) ++lowered->num_users;
  }
  if (lowered->plan) lower_collectives(plan, local_devices, node, *lowered);
  return lowered;
}

}  // namespace dtorch
