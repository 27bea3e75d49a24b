#include "apps/dtorch_app/train_options.h"

#include <algorithm>

namespace dtorch::app {

namespace po = boost::program_options;

namespace {

auto integer(int64_t& at) { return po::value(&at)->default_value(at)->value_name("N"); }
constexpr int64_t kLargestMiB = (int64_t{1} << 43) - 1;  // its bytes are still an int64_t

auto text(std::string& at, const char* name) { return po::value(&at)->default_value(at)->value_name(name); }

}  // namespace

void TrainOptions::add_model_to(CommandLine& command) {
  auto add = command.options().add_options();
  add("init-from", text(init_from, "FILE"),
      "go on with the weights (and sizes) of another program's Llama: FILE.gguf, FILE.safetensors or a folder");
  add("dim", integer(model.dim = 192), "width of the model");
  add("layers", integer(model.layers = 4), "decoder layers");
  add("heads", integer(model.heads = 6), "query heads");
  add("kv-heads", integer(model.kv_heads = 2), "key/value heads (0: as heads)");
  add("ffn", integer(model.ffn = 0), "inner width of the feed-forward part (0: 8/3 dim)");
  add("experts", integer(model.experts = 0), "experts of the feed-forward part (0: dense)");
  add("top-k-experts", integer(model.top_k), "experts that a token is computed by");
  add("aux-coef", real_option(model.aux_coef = 0.01), "weight of the experts' load-balancing loss");
  add("z-coef", real_option(model.z_coef), "weight of the router's z loss");
  add("capacity-factor", real_option(model.capacity_factor),
      "tokens an expert takes at most, as a multiple of its fair share; the others are dropped (0: no limit)");
  add("rope-theta", real_option(model.rope_theta), "base of the rotary embedding");
  add("tied", po::bool_switch(&model.tied), "the output head is the embedding");
  add("dtype", text(dtype, "TYPE"),
      "float32, float64, or bfloat16 or float16: computed in it, with float32 parameters, sums and optimizer state");
  add("loss-scale", real_option(loss_scale),
      "with --dtype float16: what the loss is multiplied by before backward at first; shrinks when gradients overflow");
  add("scale-interval", integer(scale_interval), "steps without an overflow before that scale doubles");
  add("length", integer(length), "context, in tokens");
  add("batch", integer(batch), "sequences a step, over all devices");
  add("accumulate", integer(accumulate), "parts a step's batch is computed in, one after the other");
}

void TrainOptions::add_training_to(CommandLine& command) {
  auto add = command.options().add_options();
  add("steps", integer(steps), "optimizer steps in total");
  add("lr", real_option(lr), "peak learning rate of AdamW");
  add("warmup", integer(warmup), "steps of linear warm-up");
  add("lr-schedule", text(schedule, "NAME"), "of the learning rate: constant, linear or cosine");
  add("final-lr-ratio", real_option(final_lr_ratio), "learning rate at the end, as a share of the peak");
  add("beta1", real_option(beta1), "AdamW: decay of the first moment");
  add("beta2", real_option(beta2), "AdamW: decay of the second moment");
  add("weight-decay", real_option(weight_decay), "AdamW: decoupled weight decay");
  add("clip", real_option(clip), "largest global 2-norm of the gradients");
  add("seed", integer(seed), "seed of parameters and batches");
  add("validation-share", real_option(validation_share),
      "last share of the data that is kept for validation (0: none)");
  add("validate-every", integer(validate_every), "steps between validations (0: at the end only)");
  add("validation-batches", integer(validation_batches), "batches of a validation (0: all)");
  add("checkpoint-dir", text(checkpoint_dir, "DIR"), "where checkpoints go (none: nothing is saved)");
  add("save-every", integer(save_every), "steps between checkpoints (0: at the end only)");
  add("keep-last", integer(keep_last), "checkpoints that are kept (0: all)");
  add("min-free", integer(min_free_mib),
      "MiB that must be free where checkpoints go; below it the run saves and ends (0: a quarter more than one takes)");
  add("wait-for-saves", po::bool_switch(&wait_for_saves),
      "go on only when a checkpoint is on the disk; otherwise it is written while training goes on, from the values of "
      "its step, which costs memory for what changes until then");
  add("resume", po::bool_switch(&resume), "go on from the newest complete checkpoint, if there is one");
  add("metrics", text(metrics, "FILE"), "JSON lines: step, loss, grad_norm, lr, tokens_per_s, peak_bytes");
  add("log-every", integer(log_every), "steps between lines where the output isn't a terminal");
  add("profile", po::bool_switch(&profile),
      "at the end: what each operator cost, what moved between devices, how long these were busy");
  layout.add_to(command);
}

CommandLine TrainOptions::command_line() {
  CommandLine command("dtorch_app train --data FILE.h5 [options]",
                      "Trains a Llama on a token file made by `dtorch_app prepare`.");
  command.options().add_options()("data", po::value(&data)->required()->value_name("FILE.h5"), "token file");
  add_model_to(command);
  add_training_to(command);
  return command;
}

CommandLine TrainOptions::plan_command_line() {
  CommandLine command(
      "dtorch_app plan --devices N [--nodes K] [options]",
      "What a training step of a Llama would take, without computing it: memory of each device, bytes that "
      "move between devices, cost of the controller. Takes train's options, so that a command of train's can be "
      "planned as it is; nothing is read but the data's vocabulary, and nothing is written.");
  auto add = command.options().add_options();
  add("json", po::bool_switch(&json), "print one JSON object");
  add("vocab", integer(model.vocab = 32000), "tokens of the vocabulary, without --data");
  add("data", text(data, "FILE.h5"), "token file");
  add_model_to(command);
  add_training_to(command);
  return command;
}

void TrainOptions::check() const {
  auto need = [](bool ok, const char* what) {
    if (!ok) throw UserError(what);
  };
  need(dtype == "float32" || dtype == "float64" || dtype == "bfloat16" || dtype == "float16",
       "--dtype must be float32, float64, bfloat16 or float16");
  need(loss_scale > 0 && scale_interval > 0, "--loss-scale and --scale-interval must be positive");
  need(length > 0 && batch > 0 && steps >= 0, "--length and --batch must be positive, --steps not negative");
  need(
      accumulate > 0 && batch % accumulate == 0 && batch / accumulate % std::max<int64_t>(1, layout.micro_batches) == 0,
      "--accumulate x --micro-batches must divide --batch");
  need(validation_share >= 0 && validation_share < 1, "--validation-share must be at least 0 and below 1");
  need(log_every > 0, "--log-every must be positive");
  need(lr > 0 && clip > 0, "--lr and --clip must be positive");
  need(warmup >= 0 && weight_decay >= 0, "--warmup and --weight-decay must not be negative");
  need(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, "--beta1 and --beta2 must be at least 0 and below 1");
  need(validate_every >= 0 && validation_batches >= 0 && save_every >= 0 && keep_last >= 0 && min_free_mib >= 0,
       "--validate-every, --validation-batches, --save-every, --keep-last and --min-free must not be negative");
  need(min_free_mib <= kLargestMiB, "--min-free must be less than 2^43 MiB");
  need(!resume || !checkpoint_dir.empty(), "--resume needs --checkpoint-dir");
  need(!wait_for_saves || !checkpoint_dir.empty(), "--wait-for-saves needs --checkpoint-dir");
  need(save_every == 0 || !checkpoint_dir.empty(), "--save-every needs --checkpoint-dir");
  (void)optim::Schedule::kind_from_name(schedule);
}

}  // namespace dtorch::app
