// Evaluation of a plan for one node. Both ends of a message list its parts by the same walk, over destination devices,
// pieces and sources, so that offsets agree without being sent.
#include <algorithm>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/comm/transfer_message.h"

namespace dtorch {
namespace {

Box relative_to(const Box& box, const Box& base) {
  Box result = box;
  for (int64_t dim = 0; dim < box.ndim(); ++dim) result.offset[dim] -= base.offset[dim];
  return result;
}

std::vector<int64_t> devices_of_node(const DeviceMesh& mesh, const DeviceBinding& binding, int32_t node) {
  std::vector<int64_t> devices;
  for (int64_t device : mesh.devices()) {
    if (binding.node_of(device) == node) devices.push_back(device);
  }
  return devices;
}

class StageLowering {
 public:
  StageLowering(const Stage& stage, const DeviceBinding& binding, int32_t node, FoldOrder order)
      : shape_(stage.from->global_shape),
        binding_(binding),
        node_(node),
        element_bytes_(static_cast<size_t>(size_of(stage.to->dtype))),
        folds_by_node_(order == FoldOrder::kByNode && !rounds_on_the_way(stage)) {
    result_.stage = stage;
  }

  NodePlan::NodeStage lower() {
    const Layout& to = result_.stage.to->layout;
    for (int64_t device : to.mesh().devices()) {
      const int32_t destination_node = binding_.node_of(device);
      if (destination_node != node_ && !has_sources()) continue;
      const std::vector<PlanPiece> pieces = pieces_for(result_.stage, device, binding_);
      if (destination_node != node_) {
        for (const PlanPiece& piece : pieces) send_parts(piece, device, destination_node);
        continue;
      }
      const Box box = to.box_of(shape_, device);
      result_.destinations.push_back({device, box.size, result_.pieces.size(), pieces.size()});
      for (const PlanPiece& piece : pieces) take_piece(piece, device, box);
    }
    return std::move(result_);
  }

 private:
  using Key = std::tuple<int32_t, std::vector<int64_t>, std::vector<int64_t>>;  // node, sources, box
  // Sources of a piece that lie on one node, in mesh order.
  struct Group {
    int32_t node = 0;
    std::vector<int64_t> sources;
  };

  static bool rounds_on_the_way(const Stage& stage) {
    const bool is_half = stage.to->dtype == DType::kFloat16 || stage.to->dtype == DType::kBFloat16;
    return is_half && (stage.reduce == ReduceOp::kSum || stage.reduce == ReduceOp::kAvg);
  }

  // One source each; those that a node folds itself together, in the order of the nodes' first sources.
  std::vector<Group> groups_of(const std::vector<int64_t>& sources) const {
    std::vector<Group> groups;
    for (int64_t source : sources) {
      const int32_t node = binding_.node_of(source);
      const auto same =
          std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.node == node; });
      if (folds_by_node_ && same != groups.end())
        same->sources.push_back(source);
      else
        groups.push_back({node, {source}});
    }
    return groups;
  }

  bool has_sources() {
    if (!has_sources_known_) {
      has_sources_ = !devices_of_node(result_.stage.from->layout.mesh(), binding_, node_).empty();
      has_sources_known_ = true;
    }
    return has_sources_;
  }

  Box box_of_source(const Box& box, int64_t source) const {
    return relative_to(box, result_.stage.from->layout.box_of(shape_, source));
  }

  // The offset of a part in the message to or from `node`; adds it when it isn't there.
  size_t offset_of(int32_t node, const std::vector<int64_t>& sources, int64_t device, const Box& box, bool is_send) {
    std::vector<int64_t> numbers(box.offset.begin(), box.offset.end());
    numbers.insert(numbers.end(), box.size.begin(), box.size.end());
    size_t& end = (is_send ? result_.send_bytes : result_.receive_bytes)[node];
    const auto [at, is_new] = offsets_[is_send].try_emplace(Key(node, sources, std::move(numbers)), align_part(end));
    if (is_new) {
      auto& parts = (is_send ? result_.sends : result_.receives)[node];
      parts.push_back({sources[0], device, box, box_of_source(box, sources[0]), at->second});
      for (size_t i = 1; i < sources.size(); ++i)
        parts.back().folded.emplace_back(sources[i], box_of_source(box, sources[i]));
      end = at->second + static_cast<size_t>(box.num_elements()) * element_bytes_;
    }
    return at->second;
  }

  void send_parts(const PlanPiece& piece, int64_t device, int32_t destination_node) {
    for (const Group& group : groups_of(piece.sources)) {
      if (group.node == node_) offset_of(destination_node, group.sources, device, piece.box, true);
    }
  }

  void take_piece(const PlanPiece& piece, int64_t device, const Box& box_of_device) {
    NodePlan::LocalPiece local{device, piece.box, relative_to(piece.box, box_of_device), {}, {}};
    for (const Group& group : groups_of(piece.sources)) {
      if (group.node != node_) {
        local.sources.push_back(group.sources[0]);
        local.parts.push_back({group.node, {}, offset_of(group.node, group.sources, device, piece.box, false)});
        continue;
      }
      // At the front they are folded first anyway.
      local.folds_here_first |= group.sources.size() > 1 && !local.parts.empty();
      for (int64_t source : group.sources) {
        local.sources.push_back(source);
        local.parts.push_back({NodePlan::kHere, box_of_source(piece.box, source), 0});
      }
    }
    result_.pieces.push_back(std::move(local));
  }

  const Shape& shape_;
  const DeviceBinding& binding_;
  int32_t node_;
  size_t element_bytes_;
  bool folds_by_node_;
  bool has_sources_ = false, has_sources_known_ = false;
  NodePlan::NodeStage result_;
  std::map<Key, size_t> offsets_[2];  // receives, sends
};

}  // namespace

std::shared_ptr<const NodePlan> lower_plan(const RedistributePlan& plan, const DeviceBinding& binding, int32_t node,
                                           FoldOrder order) {
  DTORCH_CHECK(!plan.stages.empty(), "a plan without stages moves nothing");
  DTORCH_CHECK(plan.stages.size() <= kMaxStages, std::to_string(plan.stages.size()) + " stages");
  auto result = std::make_shared<NodePlan>();
  result->node = node;
  for (const Stage& stage : plan.stages) result->stages.push_back(StageLowering(stage, binding, node, order).lower());
  result->local_sources = devices_of_node(plan.stages.front().from->layout.mesh(), binding, node);
  result->local_destinations = devices_of_node(plan.stages.back().to->layout.mesh(), binding, node);
  return result;
}

}  // namespace dtorch
