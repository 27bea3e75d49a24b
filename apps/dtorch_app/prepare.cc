// `dtorch_app prepare`: text files to a token file.
#include <filesystem>
#include <iostream>

#include "apps/common/command_line.h"
#include "apps/dtorch_app/commands.h"
#include "dtorch/io.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  std::vector<std::string> text;
  std::string out, tokenizer = "bytes";
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app prepare --text FILE [FILE ...] --out FILE.h5",
                      "Writes text files, one after the other, as a token file.");
  auto add = command.options().add_options();
  add("text", po::value(&options.text)->multitoken()->required()->value_name("FILE ..."), "text files (any UTF-8)");
  add("out", po::value(&options.out)->required()->value_name("FILE.h5"),
      "token file to write; an existing one is replaced");
  add("tokenizer", po::value(&options.tokenizer)->default_value(options.tokenizer)->value_name("NAME"),
      "bytes (vocabulary 256), or a GGUF file whose tokenizer is used");
  return command;
}

}  // namespace

std::string help_prepare() {
  Options options;
  return command_line(options).help();
}

int run_prepare(Client&, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  const auto tokenizer = open_tokenizer(options.tokenizer);
  const int64_t count = prepare_tokens({options.text.begin(), options.text.end()}, *tokenizer, options.out);
  std::cout << "wrote " << options.out << ": " << count << " tokens of vocabulary " << tokenizer->vocab() << "\n";
  return 0;
}

}  // namespace dtorch::app
