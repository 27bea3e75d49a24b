// Options of `dtorch_app train`.
#pragma once
#include <string>

#include "apps/common/command_line.h"
#include "apps/common/layout_options.h"
#include "dtorch/nn.h"

namespace dtorch::app {

struct TrainOptions {
  std::string data, init_from;
  nn::LlamaConfig model;  // vocab comes from the data, everything from init_from when given
  LayoutOptions layout;
  std::string dtype = "float32";
  int64_t length = 128, batch = 16, accumulate = 1, steps = 300;
  double lr = 2e-3, final_lr_ratio = 0.1, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1.0;
  int64_t warmup = 20;
  std::string schedule = "cosine";
  int64_t seed = 7;
  double validation_share = 0.1;
  int64_t validate_every = 0, validation_batches = 0;
  std::string checkpoint_dir;
  int64_t save_every = 0, keep_last = 3;
  bool resume = false;
  std::string metrics;
  int64_t log_every = 10;

  CommandLine command_line();
  void check() const;  // throws UserError
};

}  // namespace dtorch::app
