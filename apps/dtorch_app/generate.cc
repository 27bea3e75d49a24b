// Continues prompts with a model, on any layout, token by token with a key/value cache.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>

#include "apps/common/any_model.h"
#include "apps/dtorch_app/commands.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  ModelChoice choice;
  std::vector<std::string> prompts;
  int64_t tokens = 200, top_k = 0, seed = 7;
  double temperature = 0.8, top_p = 1;
  LayoutOptions layout;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app generate (--checkpoint DIR | --model FILE) --prompt TEXT [options]",
                      "Continues prompts with a model, token by token.");
  options.choice.add_to(command);
  auto add = command.options().add_options();
  add("prompt", po::value(&options.prompts)->required()->composing()->value_name("TEXT"),
      "text to continue; given several times: a batch, printed when all have ended");
  add("tokens", po::value(&options.tokens)->default_value(options.tokens)->value_name("N"),
      "tokens to generate at most");
  add("temperature", real_option(options.temperature),
      "0: always the likeliest token; 1: the model's own distribution");
  add("top-k", po::value(&options.top_k)->default_value(options.top_k)->value_name("N"),
      "choose among the N likeliest tokens (0: all)");
  add("top-p", real_option(options.top_p),
      "choose among the likeliest tokens that together have at least this probability");
  add("seed", po::value(&options.seed)->default_value(options.seed)->value_name("N"), "seed of the choices");
  options.layout.add_axes_to(command);
  return command;
}

// One of the likeliest tokens, by its probability at the temperature.
int64_t choose(const std::vector<double>& logits, const Options& options, std::mt19937_64& random) {
  if (options.temperature == 0) return std::max_element(logits.begin(), logits.end()) - logits.begin();
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> weights;
  double total = 0;
  for (size_t token : order) {
    weights.push_back(std::exp((logits[token] - logits[order[0]]) / options.temperature));
    total += weights.back();
  }
  double kept = 0;
  size_t among = 0;
  while (among < weights.size() && (among == 0 || kept < options.top_p * total)) kept += weights[among++];
  // 53 random bits: the same choice with every standard library.
  double left = static_cast<double>(random() >> 11) * 0x1p-53 * kept;
  for (size_t i = 0; i < among; ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int64_t>(order[i]);
  }
  return static_cast<int64_t>(order[among - 1]);
}

// The rows that still grow, and what each has said so far.
class Generation {
 public:
  Generation(const LoadedModel& loaded, const Options& options)
      : loaded_(loaded), options_(options), random_(static_cast<uint64_t>(options.seed)) {
    for (const std::string& prompt : options.prompts) {
      prompts_.push_back(loaded.tokenizer->encode(prompt));
      if (prompts_.back().empty()) throw UserError("--prompt must not be empty");
    }
    said_.resize(prompts_.size());
    ended_.resize(prompts_.size(), false);
  }

  void run(Client& client) {
    const bool streams = prompts_.size() == 1;
    if (streams) std::cout << options_.prompts[0] << std::flush;
    size_t longest = 0;
    for (const auto& prompt : prompts_) longest = std::max(longest, prompt.size());
    const auto rows = static_cast<int64_t>(prompts_.size());
    nn::Llama::Cache cache =
        loaded_.model->make_cache(rows, static_cast<int64_t>(longest) + options_.tokens, batch_placements());
    std::vector<int64_t> counts;
    for (const auto& prompt : prompts_) counts.push_back(static_cast<int64_t>(prompt.size()));
    Tensor logits = loaded_.model->decode(tokens_of(prompts_, longest), counts, cache);
    for (int64_t i = 0; i < options_.tokens && !client.stop_requested(); ++i) {
      const std::vector<std::vector<int64_t>> next = take(logits.to_host().to_vector<double>(), streams);
      if (std::ranges::all_of(ended_, [](bool ended) { return ended; })) break;
      if (i + 1 == options_.tokens) break;
      logits = loaded_.model->decode(tokens_of(next, 1), std::vector<int64_t>(prompts_.size(), 1), cache);
    }
    for (size_t row = 0; !streams && row < prompts_.size(); ++row)
      std::cout << options_.prompts[row] << loaded_.tokenizer->decode(said_[row]) << "\n\n";
    if (streams) std::cout << '\n';
  }

 private:
  // Rows are split as a batch is; the sequence is whole everywhere.
  Placements batch_placements() const {
    Placements placements = loaded_.layout.batch;
    for (Placement& placement : placements) {
      if (placement.is_shard(1)) placement = Replicate();
    }
    return placements;
  }

  Tensor tokens_of(const std::vector<std::vector<int64_t>>& rows, size_t length) const {
    std::vector<int64_t> all;
    for (std::vector<int64_t> row : rows) {
      row.resize(length, 0);  // behind the tokens that count, where nobody looks
      all.insert(all.end(), row.begin(), row.end());
    }
    return from_host(HostTensor::of<int64_t>({static_cast<int64_t>(rows.size()), static_cast<int64_t>(length)}, all),
                     {.mesh = loaded_.model->chunk_mesh(0), .placements = batch_placements(), .dtype = kInt64});
  }

  // The next token of every row; rows that have ended repeat their last one.
  std::vector<std::vector<int64_t>> take(const std::vector<double>& logits, bool streams) {
    const auto vocab = static_cast<size_t>(loaded_.model->config().vocab);
    std::vector<std::vector<int64_t>> next;
    for (size_t row = 0; row < prompts_.size(); ++row) {
      if (ended_[row]) {
        next.push_back({said_[row].empty() ? prompts_[row].back() : said_[row].back()});
        continue;
      }
      const auto from = logits.begin() + static_cast<std::ptrdiff_t>(row * vocab);
      const int64_t token = choose({from, from + static_cast<std::ptrdiff_t>(vocab)}, options_, random_);
      said_[row].push_back(token);
      ended_[row] = token == loaded_.tokenizer->end_of_text();
      next.push_back({token});
      if (streams) std::cout << loaded_.tokenizer->decode(token) << std::flush;
    }
    return next;
  }

  const LoadedModel& loaded_;
  const Options& options_;
  std::mt19937_64 random_;
  std::vector<std::vector<int64_t>> prompts_, said_;
  std::vector<bool> ended_;
};

}  // namespace

std::string help_generate() {
  Options options;
  return command_line(options).help();
}

int run_generate(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  if (options.temperature < 0) throw UserError("--temperature must not be negative");
  if (!(options.top_p > 0 && options.top_p <= 1)) throw UserError("--top-p must be above 0 and at most 1");
  if (options.tokens < 0) throw UserError("--tokens must not be negative");
  NoGrad no_grad;
  const LoadedModel loaded = load_model(options.choice, options.layout, client.num_devices());
  Generation(loaded, options).run(client);
  return 0;
}

}  // namespace dtorch::app
