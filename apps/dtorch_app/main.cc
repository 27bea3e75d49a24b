// dtorch_app: prepare data, train, generate and look at the job. `dtorch_app COMMAND --help` tells a command's options.
#include <iostream>
#include <string>
#include <string_view>

#include "apps/dtorch_app/commands.h"
#include "dtorch/options.h"

namespace dtorch::app {
namespace {

struct Command {
  const char* name;
  const char* about;
  int (*run)(Client&, int, char**);
  std::string (*help)();
};
constexpr Command kCommands[] = {
    {"devices", "print ranks, nodes, devices, versions and bindings", run_devices, help_devices},
    {"prepare", "make a token file from text files", run_prepare, help_prepare},
    {"train", "train a Llama on a token file", run_train, help_train},
    {"generate", "continue prompts with a model", run_generate, help_generate},
    {"evaluate", "measure how well a model predicts a text", run_evaluate, help_evaluate},
    {"checkpoint", "list, verify, compare and export checkpoints", run_checkpoint, help_checkpoint},
    {"bench", "measure this job: operators, matrix products, redistributions", run_bench, help_bench},
};

std::string overview() {
  std::string text = "usage: dtorch_app COMMAND [options]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += "  " + std::string(command.name) + std::string(12 - std::string_view(command.name).size(), ' ') +
            command.about + "\n";
  }
  return text + "\n`dtorch_app COMMAND --help` tells a command's options.\n";
}

const Command* find(const std::string& name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

int run_command(Client& client, int argc, char** argv) {
  if (argc < 2) throw UserError("which command? " + overview());
  const Command* command = find(argv[1]);
  if (!command) {
    std::vector<std::string> names;
    for (const Command& known : kCommands) names.emplace_back(known.name);
    const std::string near = nearest_word(argv[1], names);
    throw UserError("no command '" + std::string(argv[1]) + "'" + (near.empty() ? "" : "; did you mean " + near + "?") +
                    "\n" + overview());
  }
  return command->run(client, argc - 1, argv + 1);
}

}  // namespace
}  // namespace dtorch::app

int main(int argc, char** argv) {
  // Help of one command or of all needs no job.
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") {
      const dtorch::app::Command* command = dtorch::app::find(argv[1]);
      std::cout << (command ? command->help() : dtorch::app::overview() + "\n" + dtorch::format_runtime_options());
      return 0;
    }
  }
  return dtorch::run(argc, argv, dtorch::app::run_command);
}
