// `dtorch_app checkpoint`: look at checkpoints, check and compare them, hand one on as safetensors. Needs no device.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "apps/common/command_line.h"
#include "apps/dtorch_app/commands.h"
#include "dtorch/io.h"

namespace dtorch::app {
namespace {

namespace po = boost::program_options;

struct Options {
  std::string action, out;
  std::vector<std::string> paths;
};

CommandLine command_line(Options& options) {
  CommandLine command(
      "dtorch_app checkpoint ls|verify|diff|export DIR [DIR]",
      "ls: the checkpoints in a directory; verify: whether every byte is as it was written; diff: which "
      "tensors of two differ; export: the model's tensors as a safetensors file.");
  auto add = command.options().add_options();
  add("do", po::value(&options.action)->value_name("ACTION"), "ls, verify, diff or export; or the first word");
  add("path", po::value(&options.paths)->multitoken()->value_name("DIR"),
      "a checkpoint, or a directory of which the newest complete one is taken; or the words after the first");
  add("out", po::value(&options.out)->value_name("FILE"), "of export: the file to write");
  command.add_words_of("do", 1);
  command.add_words_of("path", -1);
  return command;
}

int verify(const std::string& path) {
  int code = 0;
  for (const checkpoint::Listed& listed : checkpoint::list(path)) {
    std::cout << listed.path.string() << ": " << (listed.problem.empty() ? "complete" : listed.problem) << "\n";
    if (!listed.problem.empty()) code = 1;
  }
  return code;
}

int diff(const std::string& a, const std::string& b) {
  const std::vector<std::string> lines = checkpoint::differences(a, b);
  for (const std::string& line : lines) std::cout << line << "\n";
  if (lines.empty()) std::cout << "no tensor differs\n";
  return lines.empty() ? 0 : 1;
}

}  // namespace

std::string help_checkpoint() {
  Options options;
  return command_line(options).help();
}

int run_checkpoint(Client&, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  const auto is_known = [&](const char* action) { return options.action == action; };
  const char* const actions[] = {"ls", "verify", "diff", "export"};
  if (std::none_of(std::begin(actions), std::end(actions), is_known))
    throw UserError("checkpoint can ls, verify, diff and export" +
                    (options.action.empty() ? ": say which, and a directory" : ", not '" + options.action + "'"));
  const size_t wanted = options.action == "diff" ? 2 : 1;
  if (options.paths.size() != wanted) {
    throw UserError("checkpoint " + options.action + " takes " + std::to_string(wanted) + " path" +
                    (wanted == 1 ? "" : "s"));
  }
  const std::string& path = options.paths.front();
  if (options.action == "ls") {
    for (const checkpoint::Listed& listed : checkpoint::list(path)) {
      std::cout << listed.path.string() << "  step " << listed.step << "  " << listed.bytes << " bytes in "
                << listed.num_files << " files" << (listed.problem.empty() ? "" : "  NOT COMPLETE: " + listed.problem)
                << "\n";
    }
    return 0;
  }
  if (options.action == "verify") return verify(path);
  if (options.action == "diff") return diff(path, options.paths[1]);
  if (options.out.empty()) throw UserError("checkpoint export needs --out FILE");
  std::cout << "wrote " << options.out << ": " << checkpoint::export_safetensors(path, options.out) << " tensors\n";
  return 0;
}

}  // namespace dtorch::app
