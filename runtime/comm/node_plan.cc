// Evaluation of a plan for one node. Both ends of a message list its parts by the same walk, over destination devices,
// pieces and sources, so that offsets agree without being sent.
#include <algorithm>
#include <set>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/comm/box_memory.h"
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
  StageLowering(const Stage& stage, const DeviceBinding& binding, int32_t node, FoldOrder order,
                const DirectParts& direct)
      : shape_(stage.from->global_shape),
        binding_(binding),
        node_(node),
        element_bytes_(static_cast<size_t>(size_of(stage.to->dtype))),
        direct_bytes_(direct.least_bytes),
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
      result_.destinations.push_back(
          {device, box.size, result_.pieces.size(), pieces.size(), result_.destinations.size()});
      for (const PlanPiece& piece : pieces) take_piece(piece, device, box);
      share_destination(box);
    }
    count_users();
    for (NodePlan::LocalPiece& piece : result_.pieces) piece.folds_chunks = can_fold_chunks(piece);
    return std::move(result_);
  }

 private:
  using Key = std::tuple<int32_t, std::vector<int64_t>, std::vector<int64_t>>;  // node, sources, box
  // Where a part is in what goes between two nodes; `direct` as in NodePlan::PartRef.
  struct PartPlace {
    size_t offset = 0;
    int32_t direct = NodePlan::kInBody;
  };
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

  static std::vector<int64_t> numbers_of(const Box& box) {
    std::vector<int64_t> numbers(box.offset.begin(), box.offset.end());
    numbers.insert(numbers.end(), box.size.begin(), box.size.end());
    return numbers;
  }

  // Of a part that goes to or comes from `node`; adds it when it isn't there.
  const PartPlace& place_of(int32_t node, const std::vector<int64_t>& sources, int64_t device, const Box& box,
                            bool is_send) {
    size_t& end = (is_send ? result_.send_bytes : result_.receive_bytes)[node];
    const auto [at, is_new] = places_[is_send].try_emplace(Key(node, sources, numbers_of(box)));
    PartPlace& place = at->second;
    if (is_new) {
      auto& in_message = (is_send ? result_.sends : result_.receives)[node];
      const size_t bytes = static_cast<size_t>(box.num_elements()) * element_bytes_;
      const bool is_direct = bytes >= direct_bytes_ && bytes > 0;
      auto& parts = is_direct ? (is_send ? result_.direct_sends : result_.direct_receives)[node] : in_message;
      if (is_direct) {
        place.direct = static_cast<int32_t>(parts.size());
      } else {
        place.offset = align_part(end);
        end = place.offset + bytes;
      }
      NodePlan::RemotePart& part = parts.emplace_back();
      part = {sources[0], device, box, box_of_source(box, sources[0]), place.offset};
      for (size_t i = 1; i < sources.size(); ++i) part.folded.emplace_back(sources[i], box_of_source(box, sources[i]));
      part.group = num_walked_;
    }
    return place;
  }

  void send_parts(const PlanPiece& piece, int64_t device, int32_t destination_node) {
    for (const Group& group : groups_of(piece.sources)) {
      if (group.node == node_) place_of(destination_node, group.sources, device, piece.box, true);
    }
    ++num_walked_;
  }

  void take_piece(const PlanPiece& piece, int64_t device, const Box& box_of_device) {
    NodePlan::LocalPiece local{device, piece.box, relative_to(piece.box, box_of_device), {}, {}};
    for (const Group& group : groups_of(piece.sources)) {
      if (group.node != node_) {
        const PartPlace& place = place_of(group.node, group.sources, device, piece.box, false);
        local.sources.push_back(group.sources[0]);
        local.parts.push_back({group.node, {}, place.offset, place.direct});
        continue;
      }
      // At the front they are folded first anyway.
      local.folds_here_first |= group.sources.size() > 1 && !local.parts.empty();
      for (int64_t source : group.sources) {
        local.sources.push_back(source);
        local.parts.push_back({NodePlan::kHere, box_of_source(piece.box, source)});
      }
    }
    result_.pieces.push_back(std::move(local));
    ++num_walked_;
  }

  static bool same_part(const NodePlan::PartRef& a, const NodePlan::PartRef& b) {
    return a.node == b.node && a.source_box == b.source_box && a.offset == b.offset && a.direct == b.direct;
  }
  static bool same_piece(const NodePlan::LocalPiece& a, const NodePlan::LocalPiece& b) {
    return a.box == b.box && a.sources == b.sources && std::ranges::equal(a.parts, b.parts, same_part);
  }

  // The last destination, whose box this is, has no pieces of its own when an earlier one gets the same.
  void share_destination(const Box& box) {
    NodePlan::Destination& last = result_.destinations.back();
    std::vector<size_t>& with_this_box = destinations_[numbers_of(box)];
    const std::span<const NodePlan::LocalPiece> pieces = result_.pieces;
    const auto pieces_of = [&](const NodePlan::Destination& destination) {
      return pieces.subspan(destination.first_piece, destination.num_pieces);
    };
    for (size_t index : with_this_box) {
      const NodePlan::Destination& other = result_.destinations[index];
      if (!std::ranges::equal(pieces_of(other), pieces_of(last), same_piece)) continue;
      result_.pieces.resize(last.first_piece);
      last.first_piece = other.first_piece;
      last.same_as = index;
      return;
    }
    with_this_box.push_back(last.same_as);
  }

  // How many pieces take each large part.
  void count_users() {
    for (const NodePlan::LocalPiece& piece : result_.pieces) {
      for (const NodePlan::PartRef& part : piece.parts) {
        if (part.direct != NodePlan::kInBody) ++num_users_[{part.node, part.direct}];
      }
    }
  }

  // Every part that comes from elsewhere is a large one that only this piece takes, in a group of its own.
  bool can_fold_chunks(const NodePlan::LocalPiece& piece) const {
    if (piece.parts.size() == 1 && result_.stage.divisor == 1) return false;
    std::map<std::pair<int32_t, size_t>, std::ptrdiff_t> groups;  // of a node: how many of the parts
    for (const NodePlan::PartRef& part : piece.parts) {
      if (part.node == NodePlan::kHere) continue;
      if (part.direct == NodePlan::kInBody || num_users_.at({part.node, part.direct}) != 1) return false;
      ++groups[{part.node, result_.direct_receives.at(part.node)[static_cast<size_t>(part.direct)].group}];
    }
    std::set<int32_t> nodes;
    for (const auto& [group, size] : groups) {
      const auto is_of_group = [number = group.second](const auto& part) { return part.group == number; };
      if (!nodes.insert(group.first).second) return false;
      if (std::ranges::count_if(result_.direct_receives.at(group.first), is_of_group) != size) return false;
    }
    return !groups.empty();
  }

  const Shape& shape_;
  const DeviceBinding& binding_;
  int32_t node_;
  size_t element_bytes_;
  size_t direct_bytes_;
  bool folds_by_node_;
  bool has_sources_ = false, has_sources_known_ = false;
  NodePlan::NodeStage result_;
  std::map<Key, PartPlace> places_[2];  // receives, sends
  size_t num_walked_ = 0;               // pieces of all destinations that this node sends to or has
  std::map<std::vector<int64_t>, std::vector<size_t>> destinations_;  // with pieces of their own, by box
  std::map<std::pair<int32_t, int32_t>, size_t> num_users_;           // of large parts, by node and number
};

// Where the results of `stage` lie in the one result that `next`, a copy, makes here; empty when not all of them are
// runs of its memory that `next` leaves as they are.
std::vector<Box> places_in(const NodePlan::NodeStage& stage, const NodePlan::NodeStage& next) {
  if (next.destinations.empty() || !next.stage.folded_axes.empty() || next.stage.divisor != 1) return {};
  if (std::ranges::any_of(next.destinations, [](const auto& destination) { return destination.same_as != 0; }))
    return {};
  const auto box_of = [](const TensorMeta& meta, int64_t device) {
    return meta.layout.box_of(meta.global_shape, device);
  };
  const Box whole = box_of(*next.stage.to, next.destinations[0].device);
  std::vector<Box> places;
  std::vector<std::pair<int64_t, int64_t>> runs;  // first element and the one behind the last
  std::map<int64_t, Box> boxes;                   // by device
  for (size_t i = 0; i < stage.destinations.size(); ++i) {
    const NodePlan::Destination& destination = stage.destinations[i];
    const Box box = box_of(*stage.stage.to, destination.device);
    const int64_t first =
        box.empty() || !whole.contains(box) ? -1 : contiguous_offset(whole.size, relative_to(box, whole));
    if (first < 0) return {};
    places.push_back(relative_to(box, whole));
    boxes[destination.device] = box;
    if (destination.same_as == i) runs.emplace_back(first, first + box.num_elements());
  }
  std::ranges::sort(runs);
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].first < runs[i - 1].second) return {};
  }
  for (const NodePlan::LocalPiece& piece : next.pieces) {
    if (piece.parts.size() != 1) return {};
    if (piece.parts[0].node == NodePlan::kHere && boxes.contains(piece.sources[0])) continue;
    if (std::ranges::any_of(boxes, [&](const auto& box) { return !intersect(box.second, piece.box).empty(); }))
      return {};
  }
  return places;
}

}  // namespace

std::shared_ptr<const NodePlan> lower_plan(const RedistributePlan& plan, const DeviceBinding& binding, int32_t node,
                                           FoldOrder order, const DirectParts& direct) {
  DTORCH_CHECK(!plan.stages.empty(), "a plan without stages moves nothing");
  DTORCH_CHECK(plan.stages.size() <= kMaxStages, std::to_string(plan.stages.size()) + " stages");
  auto result = std::make_shared<NodePlan>();
  result->node = node;
  result->chunk_bytes = direct.chunk_bytes;
  for (const Stage& stage : plan.stages)
    result->stages.push_back(StageLowering(stage, binding, node, order, direct).lower());
  for (size_t i = 0; i + 1 < result->stages.size(); ++i)
    result->stages[i].places_in_next = places_in(result->stages[i], result->stages[i + 1]);
  result->local_sources = devices_of_node(plan.stages.front().from->layout.mesh(), binding, node);
  result->local_destinations = devices_of_node(plan.stages.back().to->layout.mesh(), binding, node);
  return result;
}

}  // namespace dtorch
