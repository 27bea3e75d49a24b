// The one table of environment variables and command line options that every DTorch program has, and its parser. Called
// in main, before other threads start.
#pragma once
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/nearest_word.h"

namespace dtorch {

// What the controller may do to a subgraph before it is sent; docs/control_plane.md.
inline constexpr const char* kPassNames[] = {
    "repeated_operators", "redundant_redistributes", "dead_operators", "early_reductions", "liveness", "fusion",
    "bucketing"};

struct RuntimeOptions {
  int64_t devices = 0;             // over the whole cluster; 0: one per node on CPU, every GPU found on CUDA
  int32_t nodes = 1;               // Sub-Controllers inside the process; under mpirun the ranks decide
  std::string device = "cpu";      // "cpu", "cuda", "null" or "fake"
  int32_t threads_per_device = 1;  // LibTorch's threads for one CPU device
  int32_t compute_streams = 1;     // a device
  std::string trace;               // file; "" for none
  int32_t metrics_port = -1;       // of an HTTP server for Prometheus; 0: any that is free, -1: none
  std::string metrics_address = "127.0.0.1";
  bool explain = false;
  std::vector<std::string> passes{"repeated_operators", "dead_operators", "early_reductions", "liveness", "fusion"};
  double deadline_s = 300;          // 0: never
  double stall_report_s = 30;       // 0: never
  double heartbeat_timeout_s = -1;  // 0: never; -1: as --recover wants it
  double slow_node_factor = 2;      // 0: never
  double stop_after_s = 0;          // 0: never
  std::string result;               // file; "" for none
  std::string log_level = "info";
  bool fast_reduce = false;
  bool deterministic = false;
  bool check_metadata = true;
  bool check_replicas = false;
  bool templates = true;
  bool device_graphs = true;  // on devices that run behind the host
  int32_t fan_out = 8;
  bool recover = false;         // go on without a node that is lost
  int32_t spares = 0;           // the last nodes, which hold no devices until then
  int32_t snapshot_every = 10;  // optimizer steps
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
