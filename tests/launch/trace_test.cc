// --trace: the file is JSON that holds every thread's work on one clock; slices nest, messages arrive after they were
// sent, operators have names, values and source lines.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "dtorch/dtorch.h"

namespace dtorch {
namespace {

using nlohmann::json;

// Microseconds are printed with the nanoseconds behind the point.
constexpr double kRounding = 1e-3;

// What the program above it wrote to --trace.
json traced(int nodes, int64_t devices, const std::function<void(Client&)>& program) {
  const std::string path = testing::TempDir() + "trace_" + std::to_string(::getpid()) + ".json";
  std::vector<std::string> words = {"program",
                                    "--nodes",
                                    std::to_string(nodes),
                                    "--devices",
                                    std::to_string(devices),
                                    "--trace",
                                    path,
                                    "--passes=-redundant_redistributes"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 0);
  std::ifstream file(path);
  json timeline = json::parse(file);
  std::filesystem::remove(path);
  return timeline;
}

void gather_and_split(Client& client) {
  const DeviceMesh mesh = init_device_mesh("cpu", {client.num_devices()});
  Tensor x = full({8, 8}, 1.0, {.mesh = mesh, .placements = {Shard(0)}});
  for (int i = 0; i < 20; ++i) x = x.redistribute({Replicate()}).redistribute({Shard(1)}).redistribute({Shard(0)});
  static_cast<void>(x.to_host());
}

class Trace : public testing::Test {
 protected:
  static void SetUpTestSuite() { timeline_ = new json(traced(2, 4, gather_and_split)); }
  static void TearDownTestSuite() { delete timeline_; }
  static std::vector<json> events(const char* phase, const std::string& category = "") {
    std::vector<json> found;
    for (const json& event : timeline_->at("traceEvents")) {
      if (event.at("ph") == phase && (category.empty() || event.value("cat", "") == category)) found.push_back(event);
    }
    return found;
  }
  static json* timeline_;
};
json* Trace::timeline_ = nullptr;

TEST_F(Trace, SlicesOfAThreadNest) {
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<double, double>>> by_thread;
  for (const json& slice : events("X")) {
    const double begin = slice.at("ts"), duration = slice.at("dur");
    EXPECT_GE(begin, 0);
    EXPECT_GE(duration, 0);
    by_thread[{slice.at("pid"), slice.at("tid")}].emplace_back(begin, begin + duration);
  }
  EXPECT_GE(by_thread.size(), 3u + 4u + 2u) << "client, executor, inbox; devices; transfers of two nodes";
  for (auto& [thread, slices] : by_thread) {
    std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open;  // ends
    for (const auto& [begin, end] : slices) {
      while (!open.empty() && open.back() <= begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back() + kRounding) << "thread " << thread.first << "/" << thread.second;
      }
      open.push_back(end);
    }
  }
}

TEST_F(Trace, MessagesArriveAfterTheyWereSentWithinAStageOfTheirTransfer) {
  std::map<std::string, json> sent, taken;
  for (const json& message : events("s")) EXPECT_TRUE(sent.emplace(message.at("id"), message).second);
  for (const json& message : events("f")) EXPECT_TRUE(taken.emplace(message.at("id"), message).second);
  // Two redistributions a round move data, each with a message each way; the slice in between is local.
  EXPECT_EQ(sent.size(), 20u * 2u * 2u);
  ASSERT_EQ(taken.size(), sent.size());
  const std::vector<json> stages = events("X", "transfer");
  for (const auto& [id, from] : sent) {
    ASSERT_TRUE(taken.contains(id)) << id;
    const json& to = taken.at(id);
    EXPECT_GE(to.at("ts").get<double>(), from.at("ts").get<double>()) << id;
    EXPECT_EQ(from.at("args"), to.at("args"));
    EXPECT_EQ(from.at("pid").get<int>(), from.at("args").at("from").get<int>() + 1);
    EXPECT_EQ(to.at("pid").get<int>(), to.at("args").at("to").get<int>() + 1);
    for (const json& end : {from, to}) {
      const auto encloses = [&](const json& stage) {
        const double begin = stage.at("ts"), at = end.at("ts");
        return stage.at("pid") == end.at("pid") && stage.at("tid") == end.at("tid") && begin <= at + kRounding &&
               at <= begin + stage.at("dur").get<double>() + kRounding;
      };
      EXPECT_TRUE(std::any_of(stages.begin(), stages.end(), encloses)) << id;
    }
  }
}

TEST_F(Trace, OperatorsOfEveryDeviceHaveNamesValuesAndSourceLines) {
  std::map<int64_t, std::map<std::string, int>> calls;  // by thread
  for (const json& call : events("X", "operator")) {
    ++calls[call.at("pid").get<int64_t>() * 1000 + call.at("tid").get<int64_t>()][call.at("name")];
    EXPECT_NE(call.at("args").at("line").get<std::string>().find("trace_test.cc:"), std::string::npos) << call;
    EXPECT_NE(call.at("args").at("values").get<std::string>().find("bytes"), std::string::npos) << call;
  }
  ASSERT_EQ(calls.size(), 4u);
  for (const auto& [thread, names] : calls) {
    EXPECT_EQ(names.at("redistribute"), 60) << thread;
    EXPECT_EQ(names.count("an operator"), 0u) << "a place that nobody knows";
  }
  EXPECT_FALSE(events("X", "wait").empty());
}

TEST_F(Trace, ThreadsAndProcessesHaveNamesAndNothingWasDropped) {
  std::set<std::string> names;
  for (const json& name : events("M")) names.insert(name.at("args").at("name"));
  for (const char* expected : {"client", "inbox", "device 0", "device 3", "transfers 0"})
    EXPECT_TRUE(names.contains(expected)) << expected;
  EXPECT_EQ(timeline_->at("otherData").at("dropped_events"), 0);
  EXPECT_EQ(timeline_->at("otherData").at("nodes_without_answer"), 0);
  EXPECT_EQ(timeline_->at("otherData").at("clock_error_ns"), 0) << "the nodes are threads of this process";
  const std::vector<json> host = events("X", "host");
  for (const char* expected : {"redistribute", "wait for a read", "send a piece", "message of a node"}) {
    EXPECT_TRUE(std::any_of(host.begin(), host.end(), [&](const json& span) { return span.at("name") == expected; }))
        << expected;
  }
}

TEST(TraceFile, ThatCannotBeWrittenIsAnErrorAtTheStart) {
  std::vector<std::string> words = {"program", "--trace", testing::TempDir() + "no_such_folder/t.json"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  testing::internal::CaptureStderr();
  const std::function<void(Client&)> program = [](Client&) { FAIL() << "the program ran"; };
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("error: --trace: can't write to '"), std::string::npos);
}

}  // namespace
}  // namespace dtorch
