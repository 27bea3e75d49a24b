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
  std::string out;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app prepare --text FILE [FILE ...] --out FILE.h5",
                      "Writes text files, one after the other, as a token file: one token a byte (vocabulary 256).");
  command.options().add_options()("text", po::value(&options.text)->multitoken()->required()->value_name("FILE ..."),
                                  "text files (any UTF-8)")("out",
                                                            po::value(&options.out)->required()->value_name("FILE.h5"),
                                                            "token file to write; an existing one is replaced");
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
  const int64_t count = prepare_bytes({options.text.begin(), options.text.end()}, options.out);
  std::cout << "wrote " << options.out << ": " << count << " tokens of vocabulary 256\n";
  return 0;
}

}  // namespace dtorch::app
