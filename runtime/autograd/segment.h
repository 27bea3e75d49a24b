// One walk over the tape. Private to this room.
#pragma once
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/autograd/backward.h"
#include "runtime/client/gradient.h"

namespace dtorch {

// Nodes run from the newest to the oldest, so that a node runs when all gradients of its outputs have arrived.
class Segment {
 public:
  using Result = std::pair<IntrusivePtr<AutogradMeta>, Tensor>;
  Segment(bool retain_graph, const Where& where) : retain_graph_(retain_graph), where_(where) {}

  // Only what lies between the outputs and these is walked. Call it after all add_output.
  void restrict_to(const std::vector<Tensor>& inputs);
  void add_output(const Tensor& output, const Tensor& gradient);
  // Records the gradient operators.
  void run();
  // Normalised gradients of leaves, of tensors with retain_grad and of the inputs of restrict_to, in the order in which
  // they were complete.
  const std::vector<Result>& results() const { return results_; }

 private:
  struct Work {
    IntrusivePtr<GradNode> node;
    std::vector<IntrusivePtr<AutogradMeta>> outputs;  // by output index; null where no gradient arrived
    std::vector<Tensor> gradients;
  };
  bool is_wanted(const AutogradMeta& autograd) const;
  void deposit(const IntrusivePtr<AutogradMeta>& autograd, const Tensor& gradient);
  std::vector<Tensor> run_node(Work& work);

  const bool retain_graph_;
  const Where where_;
  bool restricted_ = false;
  std::unordered_set<const AutogradMeta*> inputs_;
  std::unordered_set<const GradNode*> needed_;  // when restricted
  std::unordered_map<GradNode*, Work> work_;
  std::priority_queue<std::pair<uint64_t, GradNode*>> ready_;  // by order on the tape
  std::unordered_map<const AutogradMeta*, size_t> leaf_result_;
  std::vector<Result> results_;
};

}  // namespace dtorch
