// How a model is spread over the devices: --dp and --tp, checked against the job.
#pragma once
#include <cstdint>

#include "apps/common/command_line.h"
#include "dtorch/nn.h"

namespace dtorch::app {

struct LayoutOptions {
  int64_t dp = 0, tp = 0;  // 0: what the other one leaves of the job's devices
  void add_to(CommandLine& command);
};

struct ModelLayout {
  DeviceMesh mesh;  // (dp, tp)
  nn::LlamaParallel parallel;
  Placements batch;  // of tokens [B, T]
  TensorOptions batch_options(DType dtype = kInt64) const {
    return {.mesh = mesh, .placements = batch, .dtype = dtype};
  }
};
// Throws UserError that lists the legal values when dp x tp isn't the number of devices or tp doesn't fit the model.
ModelLayout make_layout(const LayoutOptions& options, int64_t num_devices, const nn::LlamaConfig& model);

}  // namespace dtorch::app
