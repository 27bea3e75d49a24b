// Weights of Llama models from files of other programs: GGUF, and safetensors with Hugging Face's names (one file, or a
// folder with model.safetensors.index.json and config.json). Each device reads only its part.
#pragma once
#include <filesystem>
#include <string>

#include "nn/llama.h"

namespace dtorch::io {

struct LlamaFile {
  nn::LlamaConfig config;      // dtype float32 unless changed before the model is made
  int64_t context_length = 0;  // that the model was trained with
  nn::Module::Source source;   // for Module::load_state_dict
  std::string tokenizer;       // for open_tokenizer; "" when the file has none
};
// path: FILE.gguf, FILE.safetensors (config.json beside it), or a folder with config.json. Throws RuntimeFault,
// DecodeError, KeyError (a tensor or key is missing) or UserError (not a Llama).
LlamaFile open_llama(const std::filesystem::path& path);

// The same function with experts: each feed-forward part is cut along its inner dim into so many experts, and every
// token is computed by all of them, each with weight 1. So weights that were trained without experts can be spread over
// an axis of experts. Throws UserError when the model has experts already or its inner width isn't a multiple.
LlamaFile cut_into_experts(const LlamaFile& dense, int64_t experts);

}  // namespace dtorch::io
