// `dtorch_app evaluate`: how well a model predicts a text, as one JSON line.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "apps/common/any_model.h"
#include "apps/dtorch_app/commands.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  ModelChoice choice;
  std::string text;
  int64_t tokens = 0, top = 8;
  LayoutOptions layout;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app evaluate (--checkpoint DIR | --model FILE) --text FILE [options]",
                      "Prints a model's mean cross entropy (nats a token) over the start of a text, and the likeliest "
                      "tokens after it, as one JSON line.");
  options.choice.add_to(command);
  auto add = command.options().add_options();
  add("text", po::value(&options.text)->required()->value_name("FILE"), "text (UTF-8)");
  add("tokens", po::value(&options.tokens)->default_value(options.tokens)->value_name("N"),
      "tokens from the start of the text, in one piece (0: all, but at most the model's context)");
  add("top", po::value(&options.top)->default_value(options.top)->value_name("N"), "likeliest tokens to print");
  options.layout.add_axes_to(command);
  return command;
}

}  // namespace

std::string help_evaluate() {
  Options options;
  return command_line(options).help();
}

int run_evaluate(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  NoGrad no_grad;
  const LoadedModel loaded = load_model(options.choice, options.layout, client.num_devices());
  std::ifstream file(options.text, std::ios::binary);
  if (!file) throw RuntimeFault("cannot open '" + options.text + "'");
  std::vector<int64_t> tokens =
      loaded.tokenizer->encode(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  const int64_t limit = options.tokens > 0 ? options.tokens : loaded.context_length;
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(limit)));
  if (tokens.size() < 2) throw UserError("'" + options.text + "' has fewer than 2 tokens");

  const auto length = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-100);  // of the last token nobody knows
  const nn::Llama& model = *loaded.model;
  const auto placed = [&](const std::vector<int64_t>& values, int64_t chunk) {
    return from_host(HostTensor::of<int64_t>({1, length}, values),
                     loaded.layout.batch_options(model.chunk_mesh(chunk)));
  };
  const Tensor logits = model(placed(tokens, 0));
  const Tensor loss = cross_entropy(logits, placed(targets, model.num_chunks() - 1));
  const std::vector<double> last = logits.slice(1, length - 1, length).to_host().to_vector<double>();
  std::vector<size_t> order(last.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t top = std::min(order.size(), static_cast<size_t>(std::max<int64_t>(0, options.top)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](size_t a, size_t b) { return last[a] > last[b]; });
  nlohmann::json likeliest = nlohmann::json::array();
  for (size_t i = 0; i < top; ++i) likeliest.push_back({order[i], last[order[i]]});
  std::cout
      << nlohmann::json{{"tokens", length}, {"cross_entropy", loss.item<double>()}, {"last_logits", likeliest}}.dump()
      << '\n';
  return 0;
}

}  // namespace dtorch::app
