// `dtorch_app devices`: what the job consists of.
#include <iostream>

#include "apps/common/command_line.h"
#include "apps/dtorch_app/commands.h"

namespace dtorch::app {
namespace {

CommandLine command_line() {
  return {"dtorch_app devices", "Prints ranks, hosts, versions and which device is where."};
}

}  // namespace

std::string help_devices() { return command_line().help(); }

int run_devices(Client& client, int argc, char** argv) {
  CommandLine command = command_line();
  command.parse(argc, argv);
  std::cout << client.describe_nodes() << client.num_devices() << " devices on " << client.num_nodes() << " nodes\n";
  return 0;
}

}  // namespace dtorch::app
