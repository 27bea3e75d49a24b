// The one table of environment variables and command line options that every DTorch program has, and its parser. Called
// in main, before other threads start.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/nearest_word.h"

namespace dtorch {

struct RuntimeOptions {
  int64_t devices = 0;             // over the whole cluster; 0: one per node on CPU, every GPU found on CUDA
  int32_t nodes = 1;               // Sub-Controllers inside the process; under mpirun the ranks decide
  std::string device = "cpu";      // "cpu" or "cuda"
  int32_t threads_per_device = 1;  // LibTorch's threads for one CPU device
  std::string trace;               // file; "" for none
  bool explain = false;
  double deadline_s = 300;  // 0: never
  std::string log_level = "info";
  bool fast_reduce = false;
  bool check_metadata = true;
  bool check_replicas = false;
  int64_t inflight_operators = 16384;
  int64_t inflight_bytes = int64_t{4} << 30;
  bool help = false;
  bool version = false;
  // True when the user named a value, on the command line or in the environment.
  bool devices_set = false;
  bool nodes_set = false;
};

// One row of the table. A switch is on by its name alone, or with =on / =off.
struct OptionRow {
  const char* name;         // "devices", for --devices
  const char* env;          // "DTORCH_DEVICES"; "" when there is none
  const char* value;        // what stands for the value in --help: "N"; "" for a switch
  const char* initial;      // default, as the user would write it; "" for none
  const char* unit;         // "operators", "s", ...; "" for none
  const char* allowed;      // completes "must be ..."
  const char* description;  // one line
};
std::span<const OptionRow> runtime_option_rows();
// "--devices", ...: candidates for a program's own "did you mean".
std::vector<std::string> runtime_option_names();

// Takes the table's options out of argv (argc shrinks; argv[argc] is null) and leaves everything else, in order, to the
// program. Both --name value and --name=value are understood; names aren't abbreviated; nothing behind "--" is touched.
// An option that isn't given takes its environment variable (empty counts as unset), else its default. --help and
// --version are noted; --help also stays in argv, so that the program can add its own part. Throws UserError that says
// what, got and allowed; argv is then unchanged.
RuntimeOptions parse_runtime_options(int& argc, char** argv);

// The table as text for --help, 120 columns.
std::string format_runtime_options();

}  // namespace dtorch
