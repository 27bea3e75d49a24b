// Gradients over a part of the tape (a segment): from outputs, with the gradients that arrive there, back to leaves or
// to chosen inputs. Gradient operators are recorded like any others; nothing here waits. Called from the Graph's user
// thread. Placements of gradients: see training.md; a gradient of a Replicate tensor may stay pending as Partial(sum)
// until it is read.
#pragma once
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch {

// When a leaf's pending gradient is reduced.
enum class GradientReduction : uint8_t {
  kAtEnd,         // when it is read: fewest bytes over several backward passes
  kEachBackward,  // after every backward: a sharded or replicated gradient is all that is kept
};

struct BackwardOptions {
  bool retain_graph = false;  // keep what the segment has saved, so that backward can run over it again
  GradientReduction reduction = GradientReduction::kAtEnd;
};

// Adds to the gradients of the leaves that `outputs` depend on (and of tensors with retain_grad()); of `inputs` alone
// when there are any (they need not be leaves). output_gradients: one an output, or none at all; an undefined one
// stands for 1 and needs a scalar output. Throws UserError: an output needs no gradient, a gradient is missing, the
// segment's saved values are gone; ShapeError: a gradient's shape isn't its output's; GraphError: outputs of different
// Graphs.
void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients = {},
              const std::vector<Tensor>& inputs = {}, const BackwardOptions& options = {},
              Where where = Where::current());

// As backward, but returns the gradients of `inputs` (undefined: no output depends on it) and leaves grad() of every
// tensor alone. They have the inputs' placements (Replicate for Partial).
std::vector<Tensor> gradients(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
                              const std::vector<Tensor>& inputs, const BackwardOptions& options = {},
                              Where where = Where::current());
// The same without the final reduction: gradients of Replicate inputs may be Partial(sum), and float32 for half types.
std::vector<Tensor> pending_gradients(const std::vector<Tensor>& outputs, const std::vector<Tensor>& output_gradients,
                                      const std::vector<Tensor>& inputs, const BackwardOptions& options = {},
                                      Where where = Where::current());

// Adds to the gradient of a leaf what was found elsewhere for the same tensor in another layout.
void add_to_grad(const Tensor& leaf, const Tensor& gradient, Where where = Where::current());

// What grad() would reduce, as it is accumulated now; undefined when there is none.
Tensor pending_grad(const Tensor& tensor);

}  // namespace dtorch
