// `dtorch_app evaluate`: how well a model predicts texts, a JSON line each.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/common/any_model.h"
#include "apps/dtorch_app/commands.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  ModelChoice choice;
  std::vector<std::string> texts;
  int64_t tokens = 0, piece = 0, top = 8;
  LayoutOptions layout;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app evaluate (--checkpoint DIR | --model FILE) --text FILE [options]",
                      "Prints a model's mean cross entropy (nats a token) over a text, and the likeliest tokens after "
                      "it, as one JSON line; of several texts one each, in order.");
  options.choice.add_to(command);
  auto add = command.options().add_options();
  add("text", po::value(&options.texts)->required()->composing()->value_name("FILE"), "text (UTF-8); may be repeated");
  add("tokens", po::value(&options.tokens)->default_value(options.tokens)->value_name("N"),
      "tokens from the start of the text (0: all)");
  add("piece", po::value(&options.piece)->default_value(options.piece)->value_name("N"),
      "a text is read in pieces of at most so many tokens, of which a model knows nothing of the one before but its "
      "last token (0: the model's context)");
  add("top", po::value(&options.top)->default_value(options.top)->value_name("N"), "likeliest tokens to print");
  options.layout.add_axes_to(command);
  return command;
}

// The first tokens of a file: `limit`, or all.
std::vector<int64_t> read_tokens(const LoadedModel& loaded, const std::string& path, int64_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeFault("cannot open '" + path + "'");
  std::vector<int64_t> tokens =
      loaded.tokenizer->encode(std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
  if (limit > 0) tokens.resize(std::min(tokens.size(), static_cast<size_t>(limit)));
  if (tokens.size() < 2) throw UserError("'" + path + "' has fewer than 2 tokens");
  return tokens;
}

struct Piece {
  double cross_entropy = 0;         // mean over its tokens but the first
  std::vector<double> last_logits;  // of the token after it
};

Piece evaluate_piece(const LoadedModel& loaded, std::span<const int64_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-100);  // of the last token nobody knows
  const nn::Llama& model = *loaded.model;
  const auto placed = [&](std::span<const int64_t> values, int64_t chunk) {
    return from_host(HostTensor::of<int64_t>({1, length}, {values.begin(), values.end()}),
                     loaded.layout.batch_options(model.chunk_mesh(chunk)));
  };
  const Tensor logits = model(placed(tokens, 0));
  const Tensor loss = cross_entropy(logits, placed(targets, model.num_chunks() - 1));
  return {loss.item<double>(), logits.slice(1, length - 1, length).to_host().to_vector<double>()};
}

nlohmann::json evaluate(const LoadedModel& loaded, std::span<const int64_t> tokens, int64_t length,
                        int64_t num_likeliest) {
  const auto size = static_cast<size_t>(std::max<int64_t>(2, length > 0 ? length : loaded.context_length));
  double sum = 0;
  int64_t num_pieces = 0;
  std::vector<double> last;
  // A piece's last token is the next one's first: every token but the text's first is predicted once.
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += size - 1) {
    const std::span<const int64_t> part = tokens.subspan(begin, std::min(size, tokens.size() - begin));
    Piece piece = evaluate_piece(loaded, part);
    sum += piece.cross_entropy * static_cast<double>(part.size() - 1);
    last = std::move(piece.last_logits);
    ++num_pieces;
  }
  std::vector<size_t> order(last.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t top = std::min(order.size(), static_cast<size_t>(std::max<int64_t>(0, num_likeliest)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top), order.end(),
                    [&](size_t a, size_t b) { return last[a] > last[b]; });
  nlohmann::json likeliest = nlohmann::json::array();
  for (size_t i = 0; i < top; ++i) likeliest.push_back({order[i], last[order[i]]});
  return {{"tokens", tokens.size()},
          {"pieces", num_pieces},
          {"cross_entropy", sum / static_cast<double>(tokens.size() - 1)},
          {"last_logits", likeliest}};
}

}  // namespace

std::string help_evaluate() {
  Options options;
  return command_line(options).help();
}

int run_evaluate(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  if (options.tokens < 0 || options.piece < 0 || options.piece == 1)
    throw UserError("--tokens must not be negative, --piece must be 0 or at least 2");
  NoGrad no_grad;
  const LoadedModel loaded = load_model(options.choice, options.layout, client.num_devices());
  // A file that can't be read is told before anything is computed.
  std::vector<std::vector<int64_t>> texts;
  for (const std::string& path : options.texts) texts.push_back(read_tokens(loaded, path, options.tokens));
  for (const auto& tokens : texts)
    std::cout << evaluate(loaded, tokens, options.piece, options.top).dump() << std::endl;
  return 0;
}

}  // namespace dtorch::app
