// Reference files: FILE.json (sizes and PyTorch's results), FILE.safetensors beside it (first weights).
// make_reference.py of the reference set describes the data stream and the update.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dtorch/nn.h"

namespace dtorch::app {

struct Reference {
  nn::LlamaConfig model;
  int64_t length = 0, batch = 0, steps = 0;
  double lr = 0, beta1 = 0, beta2 = 0, adam_eps = 0, weight_decay = 0, clip = 0;
  uint64_t seed = 0;
  bool mask = false;
  std::filesystem::path weights;
};
// Throws RuntimeFault: unreadable, a missing key; UserError: a model that this version doesn't have.
Reference read_reference(const std::filesystem::path& json);

// Tokens [B, T] and targets [B, T] (-100: ignored) of one step.
struct ReferenceBatch {
  std::vector<int64_t> inputs, targets;
  int64_t num_valid = 0;
};
ReferenceBatch reference_batch(const Reference& reference, int64_t step);

}  // namespace dtorch::app
