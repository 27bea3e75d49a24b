// Runtime options on the command line and in the environment.
#include "runtime/base/options_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

// A command line that parse_runtime_options may change.
struct CommandLine {
  explicit CommandLine(std::vector<std::string> words) : text(std::move(words)) {
    text.insert(text.begin(), "program");
    for (std::string& word : text) argv.push_back(word.data());
    argc = static_cast<int>(argv.size());
    argv.push_back(nullptr);
  }
  RuntimeOptions parse() { return parse_runtime_options(argc, argv.data()); }
  std::vector<std::string> rest() const { return {argv.begin() + 1, argv.begin() + argc}; }
  std::vector<std::string> text;
  std::vector<char*> argv;
  int argc = 0;
};

RuntimeOptions parse(std::vector<std::string> words) { return CommandLine(std::move(words)).parse(); }

std::string refusal(std::vector<std::string> words) {
  CommandLine line(std::move(words));
  const int argc = line.argc;
  try {
    line.parse();
  } catch (const UserError& error) {
    EXPECT_EQ(line.argc, argc) << "a refused command line was changed";
    return error.what();
  }
  return "accepted";
}

using Words = std::vector<std::string>;

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const OptionRow& row : runtime_option_rows()) {
      if (row.env[0] != '\0') unsetenv(row.env);
    }
  }
  void TearDown() override { SetUp(); }
};

TEST_F(OptionsTest, TakesTheRuntimesOptionsAndLeavesTheProgramsInOrder) {
  CommandLine line(
      {"train", "--steps", "10", "--devices", "4", "--lr=0.1", "data.h5", "--nodes=2", "-v", "--explain", "tail"});
  const RuntimeOptions options = line.parse();
  EXPECT_EQ(options.devices, 4);
  EXPECT_EQ(options.nodes, 2);
  EXPECT_TRUE(options.explain);
  EXPECT_TRUE(options.devices_set && options.nodes_set);
  EXPECT_EQ(line.rest(), (Words{"train", "--steps", "10", "--lr=0.1", "data.h5", "-v", "tail"}));
  EXPECT_EQ(line.argv[static_cast<size_t>(line.argc)], nullptr);
}

TEST_F(OptionsTest, WhatTheCudaBackendReadsOfTheEnvironmentMayBeAnOption) {
  parse({"--cuda-library", "/opt/libdtorch_cuda.so", "--kernel-cache=off"});
  EXPECT_STREQ(std::getenv("DTORCH_CUDA_LIBRARY"), "/opt/libdtorch_cuda.so");
  EXPECT_STREQ(std::getenv("DTORCH_KERNEL_CACHE"), "off");
  EXPECT_EQ(refusal({"--kernel-cache="}), "--kernel-cache has no value; it must be a folder, or off");
}

TEST_F(OptionsTest, UnderstandsEveryOption) {
  const RuntimeOptions options = parse({"--devices=8",
                                        "--nodes=4",
                                        "--device",
                                        "cuda",
                                        "--threads-per-device",
                                        "3",
                                        "--compute-streams",
                                        "2",
                                        "--device-graphs",
                                        "off",
                                        "--trace",
                                        "t.json",
                                        "--metrics-port",
                                        "9090",
                                        "--metrics-address",
                                        "0.0.0.0",
                                        "--explain",
                                        "--deadline",
                                        "2.5",
                                        "--stall-report",
                                        "7",
                                        "--heartbeat-timeout",
                                        "1.5",
                                        "--slow-node-factor",
                                        "3",
                                        "--stop-after",
                                        "3h50m",
                                        "--result",
                                        "end.json",
                                        "--log-level",
                                        "debug",
                                        "--fast-reduce",
                                        "--check-metadata",
                                        "off",
                                        "--check-replicas",
                                        "--inflight-operators",
                                        "99",
                                        "--inflight-bytes",
                                        "512M",
                                        "--version"});
  EXPECT_EQ(options.devices, 8);
  EXPECT_EQ(options.nodes, 4);
  EXPECT_EQ(options.device, "cuda");
  EXPECT_FALSE(options.device_graphs);
  EXPECT_EQ(options.threads_per_device, 3);
  EXPECT_EQ(options.compute_streams, 2);
  EXPECT_EQ(options.trace, "t.json");
  EXPECT_EQ(options.metrics_port, 9090);
  EXPECT_EQ(options.metrics_address, "0.0.0.0");
  EXPECT_TRUE(options.explain && options.fast_reduce && options.check_replicas && options.version);
  EXPECT_FALSE(options.check_metadata || options.help);
  EXPECT_EQ(options.deadline_s, 2.5);
  EXPECT_EQ(options.stall_report_s, 7);
  EXPECT_EQ(options.heartbeat_timeout_s, 1.5);
  EXPECT_EQ(options.slow_node_factor, 3);
  EXPECT_EQ(options.stop_after_s, 13800);
  EXPECT_EQ(options.result, "end.json");
  EXPECT_EQ(options.log_level, "debug");
  EXPECT_EQ(options.inflight_operators, 99);
  EXPECT_EQ(options.inflight_bytes, int64_t{512} << 20);
}

TEST_F(OptionsTest, DefaultsOfTheTableAreTheDefaultsOfTheStruct) {
  const RuntimeOptions defaults;
  const RuntimeOptions none = parse({});
  EXPECT_EQ(none.device, defaults.device);
  Words words;
  for (const OptionRow& row : runtime_option_rows()) {
    if (row.initial[0] != '\0') words.push_back(std::string("--") + row.name + "=" + row.initial);
  }
  const RuntimeOptions options = parse(words);
  EXPECT_EQ(options.nodes, defaults.nodes);
  EXPECT_EQ(options.device, defaults.device);
  EXPECT_EQ(options.threads_per_device, defaults.threads_per_device);
  EXPECT_EQ(options.compute_streams, defaults.compute_streams);
  EXPECT_EQ(options.metrics_port, -1);
  EXPECT_EQ(options.metrics_address, "127.0.0.1");
  EXPECT_EQ(options.explain, defaults.explain);
  EXPECT_EQ(options.deadline_s, defaults.deadline_s);
  EXPECT_EQ(options.stall_report_s, defaults.stall_report_s);
  EXPECT_LT(none.heartbeat_timeout_s, 0);
  EXPECT_EQ(options.slow_node_factor, defaults.slow_node_factor);
  EXPECT_EQ(options.stop_after_s, defaults.stop_after_s);
  EXPECT_EQ(options.log_level, defaults.log_level);
  EXPECT_EQ(options.fast_reduce, defaults.fast_reduce);
  EXPECT_EQ(options.check_metadata, defaults.check_metadata);
  EXPECT_EQ(options.check_replicas, defaults.check_replicas);
  EXPECT_EQ(options.inflight_operators, defaults.inflight_operators);
  EXPECT_EQ(options.inflight_bytes, defaults.inflight_bytes);
}

TEST_F(OptionsTest, TimesAreSecondsOrDaysHoursMinutesAndSeconds) {
  const std::pair<const char*, double> good[] = {{"90", 90},    {"0.5", 0.5},   {"90s", 90},        {"2m", 120},
                                                 {"1d", 86400}, {"1h1s", 3601}, {"1d2h3m4s", 93784}};
  for (const auto& [text, seconds] : good) EXPECT_EQ(parse({"--stop-after", text}).stop_after_s, seconds) << text;
  for (const char* bad : {"-1", "h", "3x", "3m2h", "2m2m", "1.5h", "1h30", "9999999h", "99999999999999999999s"}) {
    EXPECT_NE(refusal({"--stop-after", bad}).find("must be a time like 3h50m"), std::string::npos) << bad;
  }
}

TEST_F(OptionsTest, PassesAreAllNoneOrNamed) {
  const Words all(std::begin(kPassNames), std::end(kPassNames));
  EXPECT_EQ(parse({}).passes, parse({"--passes=-redundant_redistributes,-bucketing"}).passes);
  EXPECT_EQ(parse({"--passes", "all"}).passes, all);
  EXPECT_EQ(parse({"--passes=none"}).passes, Words{});
  EXPECT_EQ(parse({"--passes=liveness,dead_operators"}).passes, (Words{"liveness", "dead_operators"}));
  const Words left = parse({"--passes=-liveness"}).passes;
  EXPECT_EQ(left.size(), all.size() - 1);
  EXPECT_EQ(std::count(left.begin(), left.end(), "liveness"), 0);
  EXPECT_EQ(parse({"--passes=all,-liveness"}).passes, left);
  EXPECT_EQ(refusal({"--passes=fast"}).find("--passes names 'fast'; passes are repeated_operators, "), 0u);
  EXPECT_EQ(refusal({"--passes="}),
            "--passes has no value; it must be all, none, or names with commas between; -NAME leaves one out");
}

TEST_F(OptionsTest, ASwitchDoesNotTakeTheWordBehindIt) {
  CommandLine line({"--explain", "train", "--fast-reduce=off"});
  const RuntimeOptions options = line.parse();
  EXPECT_TRUE(options.explain);
  EXPECT_FALSE(options.fast_reduce);
  EXPECT_EQ(line.rest(), Words{"train"});
}

TEST_F(OptionsTest, HelpIsNotedAndStaysVisibleToTheProgram) {
  CommandLine line({"train", "--help", "--nodes", "2"});
  EXPECT_TRUE(line.parse().help);
  EXPECT_EQ(line.rest(), (Words{"train", "--help"}));
}

TEST_F(OptionsTest, DoesNotTouchWhatFollowsTwoDashes) {
  CommandLine line({"--nodes", "2", "supervise", "--", "train", "--nodes", "x"});
  EXPECT_EQ(line.parse().nodes, 2);
  EXPECT_EQ(line.rest(), (Words{"supervise", "--", "train", "--nodes", "x"}));
}

TEST_F(OptionsTest, DoesNotGuessAbbreviatedNames) {
  CommandLine line({"--node", "2", "--dev=1"});
  EXPECT_EQ(line.parse().nodes, 1);
  EXPECT_EQ(line.rest(), (Words{"--node", "2", "--dev=1"}));
}

TEST_F(OptionsTest, TheEnvironmentCountsUnlessTheCommandLineSaysOtherwise) {
  setenv("DTORCH_NODES", "3", 1);
  setenv("DTORCH_EXPLAIN", "1", 1);
  setenv("DTORCH_TRACE", "", 1);
  EXPECT_EQ(parse({}).nodes, 3);
  EXPECT_TRUE(parse({}).explain);
  EXPECT_EQ(parse({}).trace, "");
  EXPECT_EQ(parse({"--nodes", "5"}).nodes, 5);
  EXPECT_FALSE(parse({"--explain=off"}).explain);
}

TEST_F(OptionsTest, ABadValueIsRefusedWithWhatGotAndAllowed) {
  EXPECT_EQ(refusal({"--devices", "many"}), "--devices is 'many'; it must be an integer from 1 to 65536");
  EXPECT_EQ(refusal({"--devices=0"}), "--devices is '0'; it must be an integer from 1 to 65536");
  EXPECT_EQ(refusal({"--nodes=99999999999999999999"}),
            "--nodes is '99999999999999999999'; it must be an integer from 1 to 1024");
  EXPECT_EQ(refusal({"--device", "tpu"}), "--device is 'tpu'; it must be cpu, cuda or null");
  EXPECT_EQ(refusal({"--metrics-port", "65536"}), "--metrics-port is '65536'; it must be an integer from 0 to 65535");
  EXPECT_EQ(refusal({"--explain=maybe"}), "--explain is 'maybe'; it must be on or off");
  EXPECT_EQ(refusal({"--deadline", "-1"}), "--deadline is '-1'; it must be a number of seconds, at least 0 (0: never)");
  EXPECT_EQ(refusal({"--deadline", "nan"}),
            "--deadline is 'nan'; it must be a number of seconds, at least 0 (0: never)");
  EXPECT_EQ(refusal({"--slow-node-factor", "1"}),
            "--slow-node-factor is '1'; it must be 0 (never) or a number above 1");
  for (const char* text : {"", "G", "1GB", "0", "-1", "9999999T", "1.5G"}) {
    EXPECT_NE(refusal({std::string("--inflight-bytes=") + text}).find("it must be a number of bytes"),
              std::string::npos)
        << text;
  }
  setenv("DTORCH_LOG_LEVEL", "loud", 1);
  EXPECT_EQ(refusal({}), "DTORCH_LOG_LEVEL is 'loud'; it must be debug, info, warn, error or off");
}

TEST_F(OptionsTest, AMissingValueAndARepeatedOptionAreRefused) {
  EXPECT_EQ(refusal({"train", "--devices"}), "--devices has no value; it must be an integer from 1 to 65536");
  EXPECT_EQ(refusal({"--nodes=2", "--nodes", "3"}), "--nodes is given twice");
  EXPECT_EQ(refusal({"--explain", "--explain"}), "--explain is given twice");
}

TEST_F(OptionsTest, HelpShowsEveryRowOnOneLineOfAtMost120Columns) {
  const std::string text = format_runtime_options();
  std::set<std::string> names;
  for (const OptionRow& row : runtime_option_rows()) {
    EXPECT_NE(text.find(std::string("  --") + row.name), std::string::npos) << row.name;
    EXPECT_NE(text.find(row.env), std::string::npos) << row.env;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_LE(end - at, 120u) << text.substr(at, end - at);
    at = end + 1;
  }
}

TEST(NearestWord, FindsAMisspeltNameAndNothingForAStrangeOne) {
  const std::vector<std::string> names = runtime_option_names();
  EXPECT_EQ(nearest_word("--devcies", names), "--devices");
  EXPECT_EQ(nearest_word("--inflight_operator", names), "--inflight-operators");
  EXPECT_EQ(nearest_word("--learning-rate", names), "");
  EXPECT_EQ(nearest_word("", names), "");
  const std::vector<std::string> axes = {"dp", "tp"};
  EXPECT_EQ(nearest_word("DP", axes), "dp");
  EXPECT_EQ(nearest_word("pt", axes), "tp");
  EXPECT_EQ(nearest_word("sp", axes), "dp");
  EXPECT_EQ(nearest_word("xy", axes), "");
}

}  // namespace
}  // namespace dtorch
