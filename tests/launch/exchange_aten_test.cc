// What a profile and a timeline show of an exchange of ragged rows: its calls, what it moved, its messages.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "dtorch/dtorch.h"
#include "dtorch/nn.h"

namespace dtorch {
namespace {

using nlohmann::json;

constexpr int64_t kDevices = 4, kTokens = 8, kDim = 5, kInner = 3;
// Of a token: its features with its gate behind them on the way to its expert, its features on the way back.
constexpr int64_t kRowBytes[] = {(kDim + 1) * 4, kDim * 4};

void on_four_devices(std::vector<std::string> words, const std::function<void(Client&)>& program) {
  words.insert(words.begin(), {"program", "--nodes=2", "--devices=" + std::to_string(kDevices)});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 0);
}

// One expert and two tokens a device; token t is for the expert of device (t + 1) % 4. Tokens 5 and 6 are there.
Tensor routed() {
  const TensorOptions split{.mesh = init_device_mesh("cpu", {kDevices}, {"ep"}), .placements = {Shard(0)}};
  std::vector<float> chosen(kTokens * kDevices, 0.0f);
  for (int64_t token = 0; token < kTokens; ++token)
    chosen[static_cast<size_t>(token * kDevices + (token + 1) % kDevices)] = 1.0f;
  const Tensor gates = from_host(HostTensor::of<float>({kTokens, kDevices}, chosen), split);
  const Tensor x = full({kTokens, kDim}, 1.0, split), w1 = full({kDevices, kInner, kDim}, 1.0, split),
               w3 = full({kDevices, kInner, kDim}, 1.0, split), w2 = full({kDevices, kDim, kInner}, 1.0, split);
  return expert_parallel(x, gates, w1, w3, w2);
}
constexpr int64_t kTokensThatMove = 6;

const CommunicationEntry* exchange_in(const Profile& profile) {
  const auto found = std::ranges::find_if(
      profile.communication, [](const CommunicationEntry& entry) { return entry.kind == "all-to-all of rows"; });
  return found == profile.communication.end() ? nullptr : &*found;
}

TEST(ExchangeProfile, HasTheRowsThatMovedAndTheBytesThatThereAre) {
  on_four_devices({}, [](Client& client) {
    client.start_profile();
    static_cast<void>(routed().to_host());
    const Profile profile = client.profile();
    const CommunicationEntry* entry = exchange_in(profile);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->axes, "ep");
    EXPECT_EQ(entry->calls, 2);
    EXPECT_EQ(entry->bytes, kTokensThatMove * (kRowBytes[0] + kRowBytes[1]));
    std::map<std::string, ProfileEntry> by_name;
    for (const ProfileEntry& operators : profile.operators) by_name[operators.name] = operators;
    constexpr int64_t kCounts = kDevices * kDevices * 8;
    EXPECT_EQ(by_name.at("exchange_rows").calls, 2 * kDevices);
    EXPECT_EQ(by_name.at("exchange_rows").bytes, kTokens * (kRowBytes[0] + kRowBytes[1]) + 2 * kCounts);
    EXPECT_EQ(by_name.at("moe_dispatch").bytes, kTokens * kRowBytes[0] + kCounts);
    EXPECT_EQ(by_name.at("moe_experts_rows").bytes, kTokens * kRowBytes[1]);
  });
}

TEST(ExchangeProfile, OfSimulatedDevicesCountsAllRowsThatThereCanBe) {
  on_four_devices({"--device=null"}, [](Client& client) {
    client.start_profile();
    static_cast<void>(routed().to_host());
    const Profile profile = client.profile();
    const CommunicationEntry* entry = exchange_in(profile);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->calls, 2);
    EXPECT_EQ(entry->bytes, kTokens * (kDevices - 1) * (kRowBytes[0] + kRowBytes[1]));
  });
}

TEST(ExchangeTrace, HasTheMessagesOfBothRoundsWithinTheirSlices) {
  const std::string path = testing::TempDir() + "exchange_trace_" + std::to_string(::getpid()) + ".json";
  on_four_devices({"--trace", path}, [](Client&) { static_cast<void>(routed().to_host()); });
  std::ifstream file(path);
  const json timeline = json::parse(file);
  std::filesystem::remove(path);
  // By process, which is a node, and thread.
  std::vector<json> slices;
  std::map<std::string, json> sent, taken;
  for (const json& event : timeline.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X" && event.at("cat") == "transfer" && event.at("name") == "exchange_rows") slices.push_back(event);
    if (phase != "s" && phase != "f") continue;
    EXPECT_TRUE((phase == "s" ? sent : taken).emplace(event.at("id"), event).second) << event;
  }
  // Two exchanges, two nodes, two rounds: counts and rows.
  EXPECT_EQ(slices.size(), 8u);
  EXPECT_EQ(sent.size(), 8u);
  EXPECT_EQ(taken.size(), 8u);
  int64_t bytes = 0;
  for (const auto& [id, from] : sent) {
    ASSERT_TRUE(taken.contains(id)) << id;
    EXPECT_EQ(from.at("args"), taken.at(id).at("args")) << id;
    bytes += from.at("args").at("bytes").get<int64_t>();
    for (const json& end : {from, taken.at(id)}) {
      const auto encloses = [&](const json& slice) {
        constexpr double kRounding = 1e-3;
        const double begin = slice.at("ts"), at = end.at("ts");
        return slice.at("pid") == end.at("pid") && slice.at("tid") == end.at("tid") && begin <= at + kRounding &&
               at <= begin + slice.at("dur").get<double>() + kRounding;
      };
      EXPECT_TRUE(std::ranges::any_of(slices, encloses)) << id;
    }
  }
  // Four tokens' experts are on the other node. A message of counts has one for each pair of devices.
  constexpr int64_t kCounts = 2 * 2 * 8;
  EXPECT_EQ(bytes, 4 * (kRowBytes[0] + kRowBytes[1]) + 4 * kCounts);
  for (const json& slice : slices)
    EXPECT_NE(slice.at("args").at("line").get<std::string>().find("exchange_aten_test.cc:"), std::string::npos);
}

}  // namespace
}  // namespace dtorch
