// The training loop: the same program on one device and on any mesh. Reads are asynchronous, so that the loop runs
// ahead of the devices; a step's figures are reported when they have arrived.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <optional>
#include <utility>

#include "apps/common/model_config.h"
#include "apps/dtorch_app/commands.h"
#include "apps/dtorch_app/disk_watch.h"
#include "apps/dtorch_app/progress.h"
#include "apps/dtorch_app/train_options.h"
#include "dtorch/io.h"
#include "dtorch/nn.h"

namespace dtorch::app {
namespace {

using Clock = std::chrono::steady_clock;
// Exit code of a run that was asked to end and has saved; the launcher may start it again.
constexpr int kPreempted = 77;

class Trainer {
 public:
  Trainer(Client& client, TrainOptions options);
  int run();

 private:
  struct InFlight {
    int64_t step;
    double lr;
    TensorFuture loss, norm;
    std::optional<TensorFuture> loss_scale;
  };
  template <class Read>
  Batch batch_of(Read&& read) const;
  void record_step(int64_t step);
  void report_oldest();
  std::optional<double> validate();
  void validate_and_say(int64_t step);
  void save(int64_t steps_done);
  void report_save(bool wait);
  void resume_scale(const std::string& config);
  [[noreturn]] void end_short_of_disk(const std::string& shortage, int64_t step);
  void start_profile();
  void say_profile();

  Client& client_;
  TrainOptions options_;
  TokenData data_, training_;
  std::optional<TokenData> validation_;
  ModelLayout layout_;
  std::optional<nn::Llama> model_;
  std::optional<optim::AdamW> optimizer_;
  std::optional<nn::LossScaler> scaler_;  // in float16
  optim::Schedule schedule_;
  std::optional<Progress> progress_;
  std::deque<InFlight> in_flight_;
  Clock::time_point last_report_ = Clock::now();
  int64_t saved_at_ = -1;              // steps done at the last save, which may be under way
  std::filesystem::path being_saved_;  // empty: nothing is
  DiskWatch disk_;
};

Trainer::Trainer(Client& client, TrainOptions options)
    : client_(client),
      options_(std::move(options)),
      data_(TokenData::open(options_.data)),
      training_(data_),
      disk_(options_.checkpoint_dir, options_.min_free_mib << 20) {
  if (options_.validation_share > 0) {
    training_ = data_.slice(0, 1 - options_.validation_share);
    validation_ = data_.slice(1 - options_.validation_share, 1);
  }
  std::optional<io::LlamaFile> initial;
  if (!options_.init_from.empty()) {
    initial = io::open_llama(options_.init_from);
    options_.model = initial->config;
    if (data_.vocab() > options_.model.vocab) {
      throw UserError("'" + options_.data + "' has tokens of vocabulary " + std::to_string(data_.vocab()) + ", '" +
                      options_.init_from + "' has " + std::to_string(options_.model.vocab) +
                      "; prepare the text with the model's tokenizer (--tokenizer)");
    }
  } else {
    options_.model.vocab = data_.vocab();
  }
  const DType dtype = dtype_from_name(options_.dtype);
  const bool is_narrow = dtype == kBFloat16 || dtype == kFloat16;
  options_.model.dtype = is_narrow ? kFloat32 : dtype;
  options_.model = options_.model.resolved();
  layout_ = make_layout(options_.layout, client.num_devices(), options_.model,
                        is_narrow ? std::optional(dtype) : std::nullopt);
  client.manual_seed(static_cast<uint64_t>(options_.seed));
  model_.emplace(options_.model, layout_.parallel);
  if (initial) model_->load_state_dict(initial->source);
  optimizer_.emplace(model_->parameters(), optim::AdamWOptions{.lr = options_.lr,
                                                               .betas = {options_.beta1, options_.beta2},
                                                               .weight_decay = options_.weight_decay});
  if (dtype == kFloat16) {
    scaler_.emplace(model_->chunk_mesh(model_->num_chunks() - 1),
                    nn::LossScalerOptions{.initial = options_.loss_scale, .growth_interval = options_.scale_interval});
  }
  schedule_ = {.kind = optim::Schedule::kind_from_name(options_.schedule),
               .lr = options_.lr,
               .warmup_steps = options_.warmup,
               .total_steps = options_.steps,
               .final_ratio = options_.final_lr_ratio};
}

// Inputs go to the first stage, targets to the last.
template <class Read>
Batch Trainer::batch_of(Read&& read) const {
  const DeviceMesh &first = model_->chunk_mesh(0), &last = model_->chunk_mesh(model_->num_chunks() - 1);
  Batch batch = read(layout_.batch_options(first));
  if (!(first == last)) batch.targets = read(layout_.batch_options(last)).targets;
  return batch;
}

void Trainer::record_step(int64_t step) {
  const double lr = schedule_.at(step);
  optimizer_->set_lr(lr);
  const int64_t parts = options_.accumulate * layout_.micro_batches, rows = options_.batch / parts;
  const double share = 1.0 / static_cast<double>(options_.batch * options_.length);
  const Tensor scale = scaler_ ? scaler_->scale() : Tensor();
  Tensor loss;
  for (int64_t round = 0; round < options_.accumulate; ++round) {
    std::vector<Tensor> inputs, targets;
    for (int64_t part = round * layout_.micro_batches; part < (round + 1) * layout_.micro_batches; ++part) {
      const Batch batch = batch_of([&](const TensorOptions& on) {
        return training_.random_rows(part * rows, rows, options_.length, static_cast<uint64_t>(options_.seed), step,
                                     on);
      });
      inputs.push_back(batch.inputs);
      targets.push_back(batch.targets);
    }
    const nn::PipelineLosses losses = accumulate_gradients(*model_, layout_, inputs, targets, share, scale);
    loss = loss.defined() ? loss + losses.loss : losses.loss;
  }
  Tensor norm = nn::clip_grad_norm(model_->parameters(), options_.clip, {.loss_scale = scale});
  if (scaler_)
    scaler_->step(*optimizer_, norm);
  else
    optimizer_->step();
  optimizer_->zero_grad();
  in_flight_.push_back({step, lr, loss.to_host_async(), norm.to_host_async(),
                        scaler_ ? std::optional(scale.to_host_async()) : std::nullopt});
}

void Trainer::report_oldest() {
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  StepReport report{.step = oldest.step, .lr = oldest.lr};
  report.loss = oldest.loss.get().element<double>(0);
  report.grad_norm = oldest.norm.get().element<double>(0);
  if (oldest.loss_scale) report.loss_scale = oldest.loss_scale->get().element<double>(0);
  const auto now = Clock::now();
  report.tokens_per_s =
      static_cast<double>(options_.batch * options_.length) / std::chrono::duration<double>(now - last_report_).count();
  last_report_ = now;
  const RuntimeStats stats = client_.stats();
  for (int64_t peak : stats.peak_bytes_per_node) report.peak_bytes = std::max(report.peak_bytes, peak);
  progress_->report(report);
}

// Nothing when the job is asked to stop meanwhile.
std::optional<double> Trainer::validate() {
  NoGrad no_grad;
  int64_t batches = validation_->num_sequential_batches(options_.batch, options_.length);
  if (options_.validation_batches > 0) batches = std::min(batches, options_.validation_batches);
  double total = 0;
  int64_t count = 0;
  std::deque<std::pair<TensorFuture, TensorFuture>> ahead;
  auto take = [&] {
    total += ahead.front().first.get().element<double>(0);
    count += ahead.front().second.get().element<int64_t>(0);
    ahead.pop_front();
  };
  for (int64_t b = 0; b < batches; ++b) {
    if (client_.stop_requested()) return std::nullopt;
    const Batch batch = batch_of(
        [&](const TensorOptions& on) { return validation_->sequential_batch(options_.batch, options_.length, b, on); });
    ahead.emplace_back(model_->loss_sum(batch.inputs, batch.targets).to_host_async(),
                       count_valid(batch.targets).to_host_async());
    if (ahead.size() > 2) take();
  }
  while (!ahead.empty()) take();
  return total / static_cast<double>(std::max<int64_t>(count, 1));
}

void Trainer::validate_and_say(int64_t step) {
  if (!validation_) return;
  const std::optional<double> loss = validate();
  char text[96];
  if (loss)
    std::snprintf(text, sizeof text, "step %lld: validation loss %.4f nats a token", static_cast<long long>(step),
                  *loss);
  else
    std::snprintf(text, sizeof text, "step %lld: validation left out: asked to stop", static_cast<long long>(step));
  progress_->say(text);
  last_report_ = Clock::now();
}

void Trainer::save(int64_t steps_done) {
  if (options_.checkpoint_dir.empty() || saved_at_ == steps_done) return;
  SavedModel saved{options_.model, options_.length, data_.tokenizer()};
  checkpoint::Contents contents{.model = *model_, .optimizer = &*optimizer_, .step = steps_done};
  if (scaler_) {
    contents.late_config = [saved, state = scaler_->state_async()]() mutable {
      saved.loss_scaler = state.get();
      return to_json(saved);
    };
  } else {
    contents.config = to_json(saved);
  }
  report_save(true);
  const auto path = checkpoint::save_async(options_.checkpoint_dir, contents, {.keep_last = options_.keep_last});
  saved_at_ = steps_done;
  being_saved_ = path;
  if (options_.wait_for_saves) report_save(true);
  last_report_ = Clock::now();
}

// Says so when the last checkpoint is on the disk; throws when it couldn't be written.
void Trainer::report_save(bool wait) {
  if (being_saved_.empty() || (!wait && checkpoint::is_writing())) return;
  checkpoint::wait();
  const std::filesystem::path path = std::exchange(being_saved_, {});
  disk_.saved(path);
  progress_->say("step " + std::to_string(saved_at_) + ": saved " + path.string());
}

// Trying again would end the same: somebody has to make room first.
void Trainer::end_short_of_disk(const std::string& shortage, int64_t step) {
  report_save(true);
  progress_->finish();
  throw UserError("the disk is nearly full: " + shortage + "; " +
                  (saved_at_ == step ? "saved at step " + std::to_string(step) : "nothing is saved yet") +
                  "; make room and go on with --resume");
}

void Trainer::start_profile() {
  while (!in_flight_.empty()) report_oldest();
  client_.start_profile();
  last_report_ = Clock::now();
}

void Trainer::say_profile() {
  const Profile profile = client_.profile();
  std::string text = profile_table(profile);
  if (layout_.pipeline) {
    double idle = 0;
    for (double share : profile.busy_share_per_device) idle += 1 - share;
    char line[160];
    std::snprintf(line, sizeof line,
                  "pipeline: %.1f %% of the stages' time idle in theory, %.1f %% outside kernels as measured\n",
                  100 * layout_.pipeline->bubble, 100 * idle / static_cast<double>(client_.num_devices()));
    text += line;
  }
  text.pop_back();
  progress_->say(text);
  last_report_ = Clock::now();
}

// What float16 has counted goes on in every type; after a run in another type the scale begins anew.
void Trainer::resume_scale(const std::string& config) {
  const std::optional<nn::LossScaler::State> saved = saved_model_from_json(config).loss_scaler;
  if (saved) optimizer_->set_steps(saved->steps);  // without the steps that were left out
  const nn::LossScaler::State anew{.scale = options_.loss_scale, .steps = optimizer_->steps()};
  if (scaler_) scaler_->load_state(saved.value_or(anew));
}

int Trainer::run() {
  int64_t first = 0;
  if (!options_.checkpoint_dir.empty()) checkpoint::check_directory(options_.checkpoint_dir);
  if (options_.resume && checkpoint::latest(options_.checkpoint_dir)) {
    checkpoint::Contents contents{.model = *model_, .optimizer = &*optimizer_};
    const checkpoint::Found found = checkpoint::load(options_.checkpoint_dir, contents);
    first = found.step;
    resume_scale(found.config);
    saved_at_ = first;
    disk_.saved(found.path);
  }
  progress_.emplace(first, options_.steps, options_.log_every, options_.metrics, first > 0);
  progress_->say(std::to_string(model_->num_parameters()) + " parameters, " + std::to_string(training_.num_tokens()) +
                 " training tokens, " + layout_.mesh.str() + ", " + std::to_string(client_.num_nodes()) + " nodes" +
                 (first > 0 ? ", going on at step " + std::to_string(first) : ""));
  if (layout_.pipeline) {
    char text[96];
    std::snprintf(text, sizeof text, "pipeline: %.1f %% of the stages' time idle in theory",
                  100 * layout_.pipeline->bubble);
    progress_->say(text);
  }
  if (const std::string shortage = disk_.shortage(); !shortage.empty()) end_short_of_disk(shortage, first);
  last_report_ = Clock::now();
  constexpr size_t kStepsAhead = 2;
  constexpr int64_t kStepsBeforeProfile = 2;  // in which memory and caches settle
  const int64_t profiled_from = std::min(first + kStepsBeforeProfile, options_.steps - 1);
  int64_t step = first;
  bool stopped = false;
  for (; step < options_.steps && !stopped; ++step) {
    if (options_.profile && step == profiled_from) start_profile();
    record_step(step);
    while (in_flight_.size() > kStepsAhead) report_oldest();
    const int64_t done = step + 1;
    const bool saves = options_.save_every > 0 && done % options_.save_every == 0;
    report_save(saves);  // the next one waits for the last anyway
    // After the last step nothing but the save is left, which will say itself when it can't.
    const bool looks = being_saved_.empty() && done < options_.steps;
    const std::string shortage = looks ? disk_.shortage() : "";
    stopped = client_.stop_requested() || !shortage.empty();
    const bool validates = options_.validate_every > 0 && done % options_.validate_every == 0 && done < options_.steps;
    if (stopped || validates || (saves && options_.wait_for_saves)) {
      while (!in_flight_.empty()) report_oldest();
    }
    if (validates && !stopped) validate_and_say(done);
    if (saves || stopped) save(done);
    if (!shortage.empty()) end_short_of_disk(shortage, done);
  }
  while (!in_flight_.empty()) report_oldest();
  if (options_.profile && step > profiled_from) say_profile();
  if (stopped && step < options_.steps) {
    report_save(true);
    progress_->say(
        "asked to stop: ended after step " + std::to_string(step) +
        (options_.checkpoint_dir.empty() ? "; nothing saved (--checkpoint-dir)" : "; --resume goes on from there"));
    return kPreempted;
  }
  // The save first: a stop that comes while the rest of the text is measured loses nothing.
  save(step);
  validate_and_say(step);
  report_save(true);
  progress_->finish();
  return 0;
}

}  // namespace

std::string help_train() {
  TrainOptions options;
  return options.command_line().help();
}

int run_train(Client& client, int argc, char** argv) {
  TrainOptions options;
  options.command_line().parse(argc, argv);
  options.check();
  return Trainer(client, options).run();
}

}  // namespace dtorch::app
