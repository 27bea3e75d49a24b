// Activation checkpointing: a part of a model whose inner values aren't kept from forward to backward but computed
// again.
#pragma once
#include <functional>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch::nn {

// function(inputs), without keeping what is computed inside: backward calls it a second time, with the same random
// numbers. Gradients go to the inputs and to every parameter that the function uses. It must be repeatable: the same
// operators for the same inputs. At least one input must need a gradient for the parameters to get theirs.
std::vector<Tensor> checkpoint(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                               const std::vector<Tensor>& inputs, Where where = Where::current());

}  // namespace dtorch::nn
