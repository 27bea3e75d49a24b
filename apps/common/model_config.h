// The model's sizes as a checkpoint keeps them (JSON), so that `generate` finds them again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "dtorch/nn.h"

namespace dtorch::app {

struct SavedModel {
  nn::LlamaConfig model;
  int64_t length = 0;  // context it was trained with
  std::string tokenizer;
  std::optional<nn::LossScaler::State> loss_scaler = {};  // of a run in float16
};
std::string to_json(const SavedModel& saved);
SavedModel saved_model_from_json(const std::string& text);  // throws RuntimeFault

}  // namespace dtorch::app
