// The public interface for models: modules, layers, Llama, optimizers, schedules.
#pragma once
#include "dtorch/dtorch.h"
#include "nn/layers.h"
#include "nn/llama.h"
#include "nn/loss_scaler.h"
#include "nn/module.h"
#include "nn/moe.h"
#include "nn/optim.h"
#include "nn/pipeline.h"
#include "nn/recompute.h"
