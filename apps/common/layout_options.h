// How a model is spread over the devices: --dp, --zero, --tp, --sp, --pp, --cp-ulysses, --cp-ring, --ep and their kin,
// checked against the job and the model.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "dtorch/nn.h"

namespace dtorch::app {

struct LayoutOptions {
  int64_t dp = 0;  // 0: what the others leave of the job's devices
  int64_t tp = 0;  // 0: what dp leaves when dp is given, else 1
  int64_t zero = 0, pp = 1, virtual_stages = 1, cp_ulysses = 1, cp_ring = 1, ep = 1, micro_batches = 1;
  bool sp = false, recompute = false;
  std::string schedule = "1f1b", ring_order = "auto";
  void add_to(CommandLine& command);       // all of them
  void add_axes_to(CommandLine& command);  // without those that only training has
};

struct ModelLayout {
  DeviceMesh mesh;
  nn::LlamaParallel parallel;
  Placements batch;  // of tokens [B, T] on the mesh of a stage
  int64_t micro_batches = 1;
  std::optional<nn::PipelineOrder> pipeline;  // with several stages
  TensorOptions batch_options(const DeviceMesh& stage, DType dtype = kInt64) const {
    return {.mesh = stage, .placements = batch, .dtype = dtype};
  }
};
// Throws UserError that lists the legal values when the axes don't multiply to the number of devices or don't fit the
// model. compute: the dtype of computation where it isn't the parameters'.
ModelLayout make_layout(const LayoutOptions& options, int64_t num_devices, const nn::LlamaConfig& model,
                        std::optional<DType> compute = {});

// Gradients of a step's micro-batches: with stages in the pipeline's order, else one after the other. inputs and
// targets are on the meshes of the first and last stage. The loss is the sum of cross entropies times `share`, aux its
// mean over the micro-batches. loss_scale: as for pipeline_step.
nn::PipelineLosses accumulate_gradients(const nn::Llama& model, const ModelLayout& layout,
                                        const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets,
                                        double share, const Tensor& loss_scale = {});

}  // namespace dtorch::app
