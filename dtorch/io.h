// The public interface for files: token data, tokenizers, checkpoints, safetensors, GGUF.
#pragma once
#include "io/checkpoint.h"
#include "io/gguf.h"
#include "io/llama_files.h"
#include "io/safetensors.h"
#include "io/token_data.h"
#include "io/tokenizer.h"
