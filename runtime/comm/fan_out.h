// The tree in which messages for all live nodes travel; acknowledgements and errors come back the same way. Up to
// `width` nodes are the controller's own children. More of them have the first one, which shares the controller's
// machine unless it is lost, as their root, and each passes on to `width` others: so what a message costs the
// controller doesn't grow with their number. A pure function of the list of nodes, so that every process knows it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/comm/endpoint.h"

namespace dtorch {

class FanOut {
 public:
  explicit FanOut(int32_t num_nodes = 1, int32_t width = 8) : nodes_(static_cast<size_t>(num_nodes)), width_(width) {
    std::iota(nodes_.begin(), nodes_.end(), 0);
  }
  // nodes: the live ones, ascending, at least one.
  FanOut(std::vector<int32_t> nodes, int32_t width) : nodes_(std::move(nodes)), width_(width) {}

  // Addresses are kController or a node.
  std::span<const int32_t> children(int32_t of) const {
    const std::span<const int32_t> all(nodes_);
    if (!has_root()) return of == kController ? all : std::span<const int32_t>();
    if (of == kController) return all.first(1);
    const size_t first = std::min(width_ * place_of(of) + 1, nodes_.size());
    return all.subspan(first, std::min(width_, nodes_.size() - first));
  }
  int32_t parent(int32_t node) const {
    const size_t place = place_of(node);
    return place == 0 || !has_root() ? kController : nodes_[(place - 1) / width_];
  }
  // Whether a message to `node` passes `by` (a node passes itself).
  bool is_below(int32_t node, int32_t by) const {
    while (node > by) node = parent(node);
    return node == by;
  }
  // The controller's child that `node` is below.
  int32_t branch_of(int32_t node) const { return has_root() ? nodes_.front() : node; }

  const std::vector<int32_t>& nodes() const { return nodes_; }
  bool contains(int32_t node) const { return std::binary_search(nodes_.begin(), nodes_.end(), node); }
  bool has_root() const { return nodes_.size() > width_; }

 private:
  size_t place_of(int32_t node) const {
    const auto at = std::lower_bound(nodes_.begin(), nodes_.end(), node);
    DTORCH_CHECK(at != nodes_.end() && *at == node, "node " + std::to_string(node) + " isn't in the tree");
    return static_cast<size_t>(at - nodes_.begin());
  }
  std::vector<int32_t> nodes_;
  size_t width_;
};

}  // namespace dtorch
