// `dtorch_app devices`: what the job consists of.
#include <iostream>
#include <string>

#include "apps/common/command_line.h"
#include "apps/dtorch_app/commands.h"
#include "dtorch/doctor.h"
#include "dtorch/options.h"
#include "dtorch/supervisor.h"

namespace dtorch::app {
namespace {

struct Options {
  bool check = false;
  std::string checkpoint_dir;
};

CommandLine command_line(Options& options) {
  CommandLine command("dtorch_app devices [--check]",
                      "Prints ranks, hosts, versions, which device is where, and the GPUs of this machine.");
  auto add = command.options().add_options();
  add("check", boost::program_options::bool_switch(&options.check),
      "instead: compare what the ranks see (versions, cores, networks, shared memory, GPUs, environment) and name what "
      "is wrong; exit code 1 if anything is");
  add("checkpoint-dir", boost::program_options::value(&options.checkpoint_dir)->value_name("DIR"),
      "with --check: all ranks must share this folder and can write there");
  return command;
}

}  // namespace

std::string help_devices() {
  Options options;
  return command_line(options).help();
}

int run_devices(Client& client, int argc, char** argv) {
  Options options;
  command_line(options).parse(argc, argv);
  std::cout << client.describe_nodes() << client.num_devices() << " devices on " << client.num_nodes() << " nodes\n"
            << "on this machine: " << describe_gpus_here();
  return 0;
}

int check_devices(int argc, char** argv) {
  Options options;
  const RuntimeOptions runtime = parse_runtime_options(argc, argv);
  command_line(options).parse(argc, argv);
  if (!is_first_rank()) return check_job(runtime, options.checkpoint_dir);
  clear_result(runtime.result);
  const int code = check_job(runtime, options.checkpoint_dir);
  // The job itself is in order; trying again finds the same.
  write_result(runtime.result, code == kDone ? result_of_code(code) : JobResult{code, "refused", "it found problems"});
  return code;
}

}  // namespace dtorch::app
