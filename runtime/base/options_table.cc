#include "runtime/base/options_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace dtorch {

namespace {

namespace po = boost::program_options;

constexpr OptionRow kRows[] = {
    {"devices", "DTORCH_DEVICES", "N", "", "", "an integer from 1 to 65536",
     "devices of the cluster; unset: 1 per node (cpu), all found (cuda)"},
    {"nodes", "DTORCH_NODES", "N", "1", "", "an integer from 1 to 1024",
     "nodes inside one process; under mpirun ranks decide"},
    {"device", "DTORCH_DEVICE", "KIND", "cpu", "", "cpu, cuda or null",
     "kind of the devices; null: nothing is computed, reads give 0"},
    {"cuda-library", "DTORCH_CUDA_LIBRARY", "FILE", "", "", "a file name",
     "libdtorch_cuda.so for --device cuda; unset: it is looked for"},
    {"kernel-cache", "DTORCH_KERNEL_CACHE", "FOLDER", "~/.cache/dtorch/kernels", "", "a folder, or off",
     "of generated GPU kernels; off: none"},
    {"threads-per-device", "DTORCH_THREADS_PER_DEVICE", "N", "1", "threads", "an integer from 1 to 4096",
     "LibTorch's, on one CPU device"},
    {"compute-streams", "DTORCH_COMPUTE_STREAMS", "N", "1", "", "an integer from 1 to 16",
     "of a device: independent operators run side by side"},
    {"trace", "DTORCH_TRACE", "FILE", "", "", "a file name", "write a timeline (Chrome trace, Perfetto)"},
    {"metrics-port", "DTORCH_METRICS_PORT", "N", "", "", "an integer from 0 to 65535",
     "rank 0 answers http://IP:N/metrics (Prometheus); 0: any port"},
    {"metrics-address", "DTORCH_METRICS_ADDRESS", "IP", "127.0.0.1", "", "an IP address of this machine",
     "where it does; 0.0.0.0: for other machines too"},
    {"explain", "DTORCH_EXPLAIN", "", "off", "", "on or off", "print subgraphs around the passes; set_explain(true)"},
    {"passes", "DTORCH_PASSES", "LIST", "-redundant_redistributes,-bucketing", "",
     "all, none, or names with commas between; -NAME leaves one out", "what is done to subgraphs"},
    {"deadline", "DTORCH_DEADLINE", "SECONDS", "300", "s", "a number of seconds, at least 0 (0: never)",
     "end a job that makes no progress; 0: never"},
    {"stall-report", "DTORCH_STALL_REPORT", "SECONDS", "30", "s", "a number of seconds, at least 0 (0: never)",
     "say who holds up a job when nothing finishes; 0: never"},
    {"heartbeat-timeout", "DTORCH_HEARTBEAT_TIMEOUT", "SECONDS", "", "", "a number of seconds, at least 0 (0: never)",
     "a node silent so long is lost; unset: 5 with --recover"},
    {"slow-node-factor", "DTORCH_SLOW_NODE_FACTOR", "FACTOR", "2", "", "0 (never) or a number above 1",
     "name a node that takes so many times its peers' time"},
    {"stop-after", "DTORCH_STOP_AFTER", "TIME", "0", "", "a time like 3h50m, 90s or 90 (seconds); 0: never",
     "ask the program to save and end, as SIGUSR1 does; 0: never"},
    {"result", "DTORCH_RESULT", "FILE", "", "", "a file name", "write how the job ended (JSON): code, status, reason"},
    {"log-level", "DTORCH_LOG_LEVEL", "LEVEL", "info", "", "debug, info, warn, error or off",
     "debug, info, warn, error or off"},
    {"fast-reduce", "DTORCH_FAST_REDUCE", "", "off", "", "on or off", "fastest order; bits may depend on the nodes"},
    {"deterministic", "DTORCH_DETERMINISTIC", "", "off", "", "on or off",
     "fold in mesh order on accelerators, too, as on the CPU"},
    {"check-metadata", "DTORCH_CHECK_METADATA", "on|off", "on", "", "on or off",
     "compare results with inferred shapes, dtypes"},
    {"check-replicas", "DTORCH_CHECK_REPLICAS", "", "off", "", "on or off",
     "after every operator compare what replicas hold (slow)"},
    {"templates", "DTORCH_TEMPLATES", "on|off", "on", "", "on or off",
     "replay what a program repeats instead of sending it anew"},
    {"device-graphs", "DTORCH_DEVICE_GRAPHS", "on|off", "on", "", "on or off",
     "GPUs capture what templates repeat (CUDA graphs)"},
    {"fan-out", "DTORCH_FAN_OUT", "N", "8", "nodes", "an integer from 1 to 1024",
     "nodes that a node passes a message to"},
    {"recover", "DTORCH_RECOVER", "on|off", "off", "", "on or off", "go on without a lost node, from a snapshot"},
    {"spares", "DTORCH_SPARES", "N", "0", "nodes", "an integer from 0 to 1023",
     "nodes that hold no devices until another is lost"},
    {"snapshot-every", "DTORCH_SNAPSHOT_EVERY", "N", "10", "steps", "an integer from 1 to 1000000",
     "optimizer steps between copies for --recover"},
    {"inflight-operators", "DTORCH_INFLIGHT_OPERATORS", "N", "16384", "operators", "an integer from 1 to 16777216",
     "how far a program may run ahead"},
    {"inflight-bytes", "DTORCH_INFLIGHT_BYTES", "BYTES", "4G", "bytes",
     "a number of bytes from 1 to 1024T, with K, M, G or T if you like", "results that may be under way"},
    {"help", "", "", "", "", "on or off", "print options and stop"},
    {"version", "", "", "", "", "on or off", "print versions and stop"},
};

bool is_switch(const OptionRow& row) { return row.value[0] == '\0'; }

[[noreturn]] void refuse(const OptionRow& row, const std::string& from, const std::string& text) {
  throw UserError(from + " is '" + text + "'; it must be " + row.allowed);
}

// One value with its place, for the messages.
struct Given {
  const OptionRow& row;
  std::string from;  // "--devices" or "DTORCH_DEVICES"
  std::string text;

  int64_t integer(int64_t lowest, int64_t highest) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest)
      refuse(row, from, text);
    return value;
  }
  double number() const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
      refuse(row, from, text);
    return value;
  }
  double factor() const {
    const double value = number();
    if (value != 0 && value <= 1) refuse(row, from, text);
    return value;
  }
  // "3h50m", "1d", "90s", "90": seconds. Every unit once, large ones first.
  double time_s() const {
    if (text.find_first_not_of("0123456789.") == std::string::npos) return number();
    double total = 0;
    std::string_view units = "dhms";
    for (const char *at = text.data(), *const end = at + text.size(); at != end;) {
      int64_t value = 0;
      const auto [stop, error] = std::from_chars(at, end, value);
      const size_t unit = stop == end ? std::string_view::npos : units.find(*stop);
      constexpr int64_t kHighest = 1'000'000;
      if (error != std::errc() || value < 0 || value > kHighest || unit == std::string_view::npos)
        refuse(row, from, text);
      total += static_cast<double>(value) * (*stop == 'd' ? 86400 : *stop == 'h' ? 3600 : *stop == 'm' ? 60 : 1);
      units.remove_prefix(unit + 1);
      at = stop + 1;
    }
    return total;
  }
  int64_t bytes() const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
    int shift = 0;
    if (!suffix.empty()) {
      const size_t power = std::string_view("KMGTkmgt").find(suffix[0]);
      if (suffix.size() != 1 || power == std::string_view::npos) refuse(row, from, text);
      shift = 10 * (static_cast<int>(power % 4) + 1);
    }
    constexpr int64_t kHighest = int64_t{1} << 50;
    if (error != std::errc() || value < 1 || value > (kHighest >> shift)) refuse(row, from, text);
    return value << shift;
  }
  bool on() const {
    for (const char* yes : {"on", "1", "true", "yes"}) {
      if (text == yes) return true;
    }
    for (const char* no : {"off", "0", "false", "no"}) {
      if (text == no) return false;
    }
    refuse(row, from, text);
  }
  std::string one_of(std::initializer_list<const char*> words) const {
    if (std::find(words.begin(), words.end(), text) == words.end()) refuse(row, from, text);
    return text;
  }
  // "all", "none", "liveness,dead_operators", "-liveness" (all others).
  std::vector<std::string> passes() const {
    if (text.empty()) refuse(row, from, text);
    const std::vector<std::string> all(std::begin(kPassNames), std::end(kPassNames));
    std::vector<std::string> result = text.starts_with('-') ? all : std::vector<std::string>();
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
      if (word == "all" || word == "none") {
        result = word == "all" ? all : std::vector<std::string>();
        continue;
      }
      const bool leaves_out = word.starts_with('-');
      if (leaves_out) word.erase(0, 1);
      if (std::find(all.begin(), all.end(), word) == all.end())
        throw UserError(fmt::format("{} names '{}'; passes are {}", from, word, fmt::join(all, ", ")));
      std::erase(result, word);
      if (!leaves_out) result.push_back(word);
    }
    return result;
  }
  std::string word() const {
    if (text.empty()) refuse(row, from, text);
    return text;
  }
};

void store(const Given& given, RuntimeOptions& options) {
  const std::string_view name = given.row.name;
  if (name == "devices") {
    options.devices = given.integer(1, 65536);
    options.devices_set = true;
  } else if (name == "nodes") {
    options.nodes = static_cast<int32_t>(given.integer(1, 1024));
    options.nodes_set = true;
  } else if (name == "device") {
    // For tests, and so not in the table: fake accelerators (docs/gpu.md), "fake:2" so many a node.
    const bool is_fake = given.text == "fake" || given.text.starts_with("fake:");
    options.device = is_fake ? given.text : given.one_of({"cpu", "cuda", "null"});
  } else if (name == "cuda-library" || name == "kernel-cache") {
    // The rooms that look for them know the environment only, and are loaded later.
    if (::setenv(given.row.env, given.word().c_str(), 1) != 0) refuse(given.row, given.from, given.text);
  } else if (name == "threads-per-device") {
    options.threads_per_device = static_cast<int32_t>(given.integer(1, 4096));
  } else if (name == "compute-streams") {
    options.compute_streams = static_cast<int32_t>(given.integer(1, 16));
  } else if (name == "device-graphs") {
    options.device_graphs = given.on();
  } else if (name == "trace") {
    options.trace = given.word();
  } else if (name == "metrics-port") {
    options.metrics_port = static_cast<int32_t>(given.integer(0, 65535));
  } else if (name == "metrics-address") {
    options.metrics_address = given.word();
  } else if (name == "explain") {
    options.explain = given.on();
  } else if (name == "passes") {
    options.passes = given.passes();
  } else if (name == "deadline") {
    options.deadline_s = given.number();
  } else if (name == "stall-report") {
    options.stall_report_s = given.number();
  } else if (name == "heartbeat-timeout") {
    options.heartbeat_timeout_s = given.number();
  } else if (name == "slow-node-factor") {
    options.slow_node_factor = given.factor();
  } else if (name == "stop-after") {
    options.stop_after_s = given.time_s();
  } else if (name == "result") {
    options.result = given.word();
  } else if (name == "log-level") {
    options.log_level = given.one_of({"debug", "info", "warn", "error", "off"});
  } else if (name == "fast-reduce") {
    options.fast_reduce = given.on();
  } else if (name == "deterministic") {
    options.deterministic = given.on();
  } else if (name == "check-metadata") {
    options.check_metadata = given.on();
  } else if (name == "check-replicas") {
    options.check_replicas = given.on();
  } else if (name == "templates") {
    options.templates = given.on();
  } else if (name == "fan-out") {
    options.fan_out = static_cast<int32_t>(given.integer(1, 1024));
  } else if (name == "recover") {
    options.recover = given.on();
  } else if (name == "spares") {
    options.spares = static_cast<int32_t>(given.integer(0, 1023));
  } else if (name == "snapshot-every") {
    options.snapshot_every = static_cast<int32_t>(given.integer(1, 1000000));
  } else if (name == "inflight-operators") {
    options.inflight_operators = given.integer(1, 16777216);
  } else if (name == "inflight-bytes") {
    options.inflight_bytes = given.bytes();
  } else if (name == "help") {
    options.help = given.on();
  } else if (name == "version") {
    options.version = given.on();
  }
}

const OptionRow* find_row(std::string_view name) {
  for (const OptionRow& row : kRows) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// Boost's view of the command line: our options with their values, everything else as it is.
po::parsed_options parse_tokens(std::vector<std::string> tokens) {
  // A switch's value stands behind '='; the word after it is the program's.
  for (std::string& token : tokens) {
    const OptionRow* row = token.starts_with("--") ? find_row(std::string_view(token).substr(2)) : nullptr;
    if (row != nullptr && is_switch(*row)) token += "=on";
  }
  po::options_description description;
  for (const OptionRow& row : kRows) description.add_options()(row.name, po::value<std::string>());
  namespace style = po::command_line_style;
  const int rules = style::allow_long | style::long_allow_adjacent | style::long_allow_next;
  return po::command_line_parser(tokens).options(description).style(rules).allow_unregistered().run();
}

}  // namespace

std::span<const OptionRow> runtime_option_rows() { return kRows; }

std::vector<std::string> runtime_option_names() {
  std::vector<std::string> names;
  for (const OptionRow& row : kRows) names.push_back(std::string("--") + row.name);
  return names;
}

RuntimeOptions parse_runtime_options(int& argc, char** argv) {
  RuntimeOptions options;
  for (const OptionRow& row : kRows) {
    const char* text = row.env[0] == '\0' ? nullptr : std::getenv(row.env);
    if (text != nullptr && *text != '\0') store({row, row.env, text}, options);
  }
  if (argc <= 1) return options;

  char** const end =
      std::find_if(argv + 1, argv + argc, [](const char* token) { return std::string_view(token) == "--"; });
  const std::vector<std::string> tokens(argv + 1, end);
  std::vector<char*> left;  // to the program
  std::vector<std::string> seen;
  char** at = argv + 1;
  try {
    for (const auto& option : parse_tokens(tokens).options) {
      char** const next = at + option.original_tokens.size();
      const OptionRow* row = option.unregistered || option.position_key >= 0 ? nullptr : find_row(option.string_key);
      if (row == nullptr || std::string_view(row->name) == "help") left.insert(left.end(), at, next);
      at = next;
      if (row == nullptr) continue;
      const std::string name = std::string("--") + row->name;
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) throw UserError(name + " is given twice");
      seen.push_back(name);
      store({*row, name, option.value.front()}, options);
    }
  } catch (const po::error_with_option_name& error) {
    const OptionRow* row = find_row(std::string_view(error.get_option_name()).substr(2));
    if (row == nullptr) throw UserError("the argument for option '" + error.get_option_name() + "' is invalid");
    throw UserError(std::string("--") + row->name + " has no value; it must be " + row->allowed);
  } catch (const po::error& error) {
    throw UserError(error.what());
  }
  DTORCH_CHECK(at == end, "the command line was not read to its end");
  left.insert(left.end(), end, argv + argc);
  std::copy(left.begin(), left.end(), argv + 1);
  argc = static_cast<int>(left.size()) + 1;
  argv[argc] = nullptr;
  return options;
}

std::string format_runtime_options() {
  std::string text = "Options of every DTorch program, their environment variables and defaults:\n";
  for (const OptionRow& row : kRows) {
    const std::string left = std::string("--") + row.name + (is_switch(row) ? "" : " ") + row.value;
    std::string initial = row.initial;
    if (row.unit[0] != '\0') initial += std::string(" ") + row.unit;
    if (!initial.empty()) initial = " (" + initial + ")";
    text += fmt::format("  {:<24} {:<26} {}{}\n", left, row.env, row.description, initial);
  }
  return text;
}

}  // namespace dtorch
