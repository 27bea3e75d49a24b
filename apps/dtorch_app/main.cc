// dtorch_app: prepare data, train, generate and look at the job. `dtorch_app COMMAND --help` tells a command's options.
#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/config_file.h"
#include "apps/dtorch_app/commands.h"
#include "dtorch/doctor.h"
#include "dtorch/options.h"

namespace dtorch::app {
namespace {

struct Command {
  const char* name;
  const char* about;
  int (*run)(Client&, int, char**);  // null: no job is started for it
  std::string (*help)();
};
constexpr Command kCommands[] = {
    {"devices", "print ranks, nodes, devices, versions and bindings", run_devices, help_devices},
    {"prepare", "make a token file from text files", run_prepare, help_prepare},
    {"train", "train a Llama on a token file", run_train, help_train},
    {"plan", "what training a Llama would take: memory, communication, control", run_plan, help_plan},
    {"generate", "continue prompts with a model", run_generate, help_generate},
    {"evaluate", "measure how well a model predicts a text", run_evaluate, help_evaluate},
    {"checkpoint", "list, verify, compare and export checkpoints", run_checkpoint, help_checkpoint},
    {"supervise", "run a command as a job, again from its last checkpoint when it is lost", nullptr, help_supervise},
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

bool has_word(int argc, char** argv, std::string_view word) {
  return std::any_of(argv + 1, argv + argc, [&](const char* argument) { return word == argument; });
}

// Commands that run beside a job, not in one.
int run_without_job(int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc - 1, argv + 1);
  } catch (const std::exception& error) {
    if (is_first_rank()) std::cerr << std::string("error: ") + error.what() + "\n";
    return 1;
  }
}

}  // namespace
}  // namespace dtorch::app

int main(int argc, char** argv) {
  // Help of one command or of all needs no job.
  if (dtorch::app::has_word(argc, argv, "--help")) {
    const dtorch::app::Command* command = dtorch::app::find(argv[1]);
    std::cout << (command ? command->help() : dtorch::app::overview() + "\n" + dtorch::format_runtime_options());
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "supervise")
    return dtorch::app::run_without_job(dtorch::app::run_supervise, argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "devices" && dtorch::app::has_word(argc, argv, "--check"))
    return dtorch::app::run_without_job(dtorch::app::check_devices, argc, argv);
  std::vector<std::string> words(argv, argv + argc);
  // A plan is made on devices that compute nothing.
  if (argc > 1 && std::string_view(argv[1]) == "plan") words.emplace_back("--device=null");
  try {
    dtorch::app::add_runtime_options_of_config(words);
  } catch (const std::exception& error) {
    if (dtorch::is_first_rank()) std::cerr << std::string("error: ") + error.what() + "\n";
    return 1;
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return dtorch::run(static_cast<int>(arguments.size()) - 1, arguments.data(), dtorch::app::run_command);
}
