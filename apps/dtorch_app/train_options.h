// Options of `dtorch_app train`, and of `dtorch_app plan`, which looks at a training step without computing it.
#pragma once
#include <string>

#include "apps/common/command_line.h"
#include "apps/common/layout_options.h"
#include "dtorch/nn.h"

namespace dtorch::app {

struct TrainOptions {
  std::string data, init_from;
  nn::LlamaConfig model;  // vocab comes from the data when given, everything from init_from when given
  LayoutOptions layout;
  std::string dtype = "float32";
  double loss_scale = 65536;  // of float16, as the next one
  int64_t scale_interval = 2000;
  int64_t length = 128, batch = 16, accumulate = 1, steps = 300;
  double lr = 2e-3, final_lr_ratio = 0.1, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1.0;
  int64_t warmup = 20;
  std::string schedule = "cosine";
  int64_t seed = 7;
  double validation_share = 0.1;
  int64_t validate_every = 0, validation_batches = 0;
  std::string checkpoint_dir;
  int64_t save_every = 0, keep_last = 3, min_free_mib = 0;
  bool resume = false, wait_for_saves = false;
  std::string metrics;
  int64_t log_every = 10;
  bool profile = false;  // train
  bool json = false;     // plan

  CommandLine command_line();       // of train
  CommandLine plan_command_line();  // of plan: train's, so that a command of train's can be planned as it is
  void check() const;               // throws UserError

 private:
  void add_model_to(CommandLine& command);
  void add_training_to(CommandLine& command);
};

}  // namespace dtorch::app
