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

}  // namespace dtorch::io
