// Continues a prompt with a trained model, on any layout. The whole window goes through the model for every token (a
// key/value cache comes with a later issue); the window keeps one shape, so that inference and lowering are done once.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>

#include "apps/common/layout_options.h"
#include "apps/common/model_config.h"
#include "apps/dtorch_app/commands.h"
#include "dtorch/io.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  std::string checkpoint, prompt;
  int64_t tokens = 200, top_k = 0, seed = 7;
  double temperature = 0.8;
  LayoutOptions layout;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app generate --checkpoint DIR --prompt TEXT [options]",
                      "Continues a prompt with a model trained by `dtorch_app train`.");
  auto add = command.options().add_options();
  add("checkpoint", po::value(&options.checkpoint)->required()->value_name("DIR"),
      "a checkpoint, or a folder of them (the newest complete one)");
  add("prompt", po::value(&options.prompt)->required()->value_name("TEXT"), "text to continue");
  add("tokens", po::value(&options.tokens)->default_value(options.tokens)->value_name("N"), "tokens to generate");
  add("temperature", po::value(&options.temperature)->default_value(options.temperature)->value_name("X"),
      "0: always the likeliest token; 1: the model's own distribution");
  add("top-k", po::value(&options.top_k)->default_value(options.top_k)->value_name("N"),
      "choose among the N likeliest tokens (0: all)");
  add("seed", po::value(&options.seed)->default_value(options.seed)->value_name("N"), "seed of the choices");
  options.layout.add_to(command);
  return command;
}

int64_t choose(const std::vector<double>& logits, const Options& options, std::mt19937_64& random) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return static_cast<int64_t>(order[0]);
  const size_t among = options.top_k > 0 ? std::min(order.size(), static_cast<size_t>(options.top_k)) : order.size();
  std::vector<double> weights(among);
  double total = 0;
  for (size_t i = 0; i < among; ++i)
    total += weights[i] = std::exp((logits[order[i]] - logits[order[0]]) / options.temperature);
  // 53 random bits: the same choice with every standard library.
  double left = static_cast<double>(random() >> 11) * 0x1p-53 * total;
  for (size_t i = 0; i < among; ++i) {
    left -= weights[i];
    if (left < 0) return static_cast<int64_t>(order[i]);
  }
  return static_cast<int64_t>(order[among - 1]);
}

}  // namespace

std::string help_generate() {
  Options options;
  return command_line(options).help();
}

int run_generate(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  if (options.temperature < 0) throw UserError("--temperature must not be negative");
  if (options.prompt.empty()) throw UserError("--prompt must not be empty");
  const auto found = checkpoint::latest(options.checkpoint);
  if (!found) throw RuntimeFault("no complete checkpoint in '" + options.checkpoint + "'");
  const SavedModel saved = saved_model_from_json(found->config);
  if (saved.tokenizer != "bytes")
    throw UserError("the model's tokenizer '" + saved.tokenizer + "' isn't known; known is bytes");

  const ModelLayout layout = make_layout(options.layout, client.num_devices(), saved.model);
  nn::Llama model(saved.model, layout.parallel);
  checkpoint::Contents contents{.model = model};
  checkpoint::load(found->path, contents);

  NoGrad no_grad;
  std::vector<int64_t> tokens;
  for (char c : options.prompt) tokens.push_back(static_cast<unsigned char>(c));
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  std::cout << options.prompt << std::flush;
  for (int64_t i = 0; i < options.tokens && !client.stop_requested(); ++i) {
    const auto used = std::min<int64_t>(saved.length, static_cast<int64_t>(tokens.size()));
    std::vector<int64_t> window(tokens.end() - used, tokens.end());
    window.resize(static_cast<size_t>(saved.length), 0);  // what comes after the last token can't be seen by it
    Tensor input =
        from_host(HostTensor::of<int64_t>({1, saved.length}, window), layout.batch_options(model.chunk_mesh(0)));
    Tensor logits = model(input).slice(1, used - 1, used);
    const int64_t next = choose(logits.to_host().to_vector<double>(), options, random);
    tokens.push_back(next);
    std::cout << static_cast<char>(next) << std::flush;
  }
  std::cout << '\n';
  return 0;
}

}  // namespace dtorch::app
