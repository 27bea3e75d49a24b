// The public interface for files: token data, checkpoints, safetensors.
#pragma once
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "io/token_data.h"
