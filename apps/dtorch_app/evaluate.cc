// `dtorch_app evaluate`: how well a model predicts texts, a JSON line each.
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
  std::vector<std::string> texts;
  int64_t tokens = 0, top = 8;
  LayoutOptions layout;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app evaluate (--checkpoint DIR | --model FILE) --text FILE [options]",
                      "Prints a model's mean cross entropy (nats a token) over the start of a text, and the likeliest "
                      "tokens after it, as one JSON line; of several texts one each, in order.");
  options.choice.add_to(command);
  auto add = command.options().add_options();
  add("text", po::value(&options.texts)->required()->composing()->value_name("FILE"), "text (UTF-8); may be repeated");
  add("tokens", po::value(&options.tokens)->default_value(options.tokens)->value_name("N"),
      "tokens from the start of the text, in one piece (0: all, but at most the model's context)");
  add("top", po::value(&options.top)->default_value(options.top)->value_name("N"), "likeliest tokens to print");
  options.layout.add_axes_to(command);
  return command;
}

// The first tokens of a file: `limit`, or as many as the model's context holds.
std::vector<int64_t> read_tokens(const LoadedModel& loaded, const std::string& path, int64_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeFault("cannot open '" + path + "'");
  std::vector<int64_t> tokens =
      loaded.tokenizer->encode(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(limit > 0 ? limit : loaded.context_length)));
  if (tokens.size() < 2) throw UserError("'" + path + "' has fewer than 2 tokens");
  return tokens;
}

nlohmann::json evaluate(const LoadedModel& loaded, const std::vector<int64_t>& tokens, int64_t num_likeliest) {
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
  const size_t top = std::min(order.size(), static_cast<size_t>(std::max<int64_t>(0, num_likeliest)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](size_t a, size_t b) { return last[a] > last[b]; });
  nlohmann::json likeliest = nlohmann::json::array();
  for (size_t i = 0; i < top; ++i) likeliest.push_back({order[i], last[order[i]]});
  return {{"tokens", length}, {"cross_entropy", loss.item<double>()}, {"last_logits", likeliest}};
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
  // A file that can't be read is told before anything is computed.
  std::vector<std::vector<int64_t>> texts;
  for (const std::string& path : options.texts) texts.push_back(read_tokens(loaded, path, options.tokens));
  for (const auto& tokens : texts) std::cout << evaluate(loaded, tokens, options.top).dump() << std::endl;
  return 0;
}

}  // namespace dtorch::app
