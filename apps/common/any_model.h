// A model for inference, from a checkpoint of `dtorch_app train` or from a file of another program, with its tokenizer.
#pragma once
#include <memory>
#include <string>

#include "apps/common/layout_options.h"
#include "dtorch/io.h"

namespace dtorch::app {

struct ModelChoice {
  std::string checkpoint, model, tokenizer, dtype = "float32";
  int64_t cut_experts = 0;
  void add_to(CommandLine& command);
};

struct LoadedModel {
  ModelLayout layout;
  std::unique_ptr<nn::Llama> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t context_length = 0;
};
// Throws UserError (neither or both are given, layout), RuntimeFault, DecodeError, KeyError.
LoadedModel load_model(const ModelChoice& choice, const LayoutOptions& layout, int64_t num_devices);

}  // namespace dtorch::app
