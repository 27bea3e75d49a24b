// What a program is told of its own cost: memory of devices, operators' time, and what a device held when memory was
// short.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "dtorch/dtorch.h"

namespace dtorch {
namespace {

// Runs `program` on two nodes with two devices each. Redistributions there and back are counted, so they stay.
void on_two_nodes(const std::function<void(Client&)>& program) {
  std::vector<std::string> words = {"program", "--nodes", "2", "--devices", "4", "--passes=-redundant_redistributes"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 0);
}

TensorOptions sharded() { return {.mesh = init_device_mesh("cpu", {4}), .placements = {Shard(0)}}; }

TEST(MemoryReport, ListsTheLargestTensorsOfEveryDeviceWithNameLayoutOperatorAndLine) {
  on_two_nodes([](Client& client) {
    const Tensor big = full({1024, 256}, 1.0, sharded());
    const Tensor small = full({4, 256}, 1.0, sharded());
    const Tensor whole = big.redistribute({Replicate()});
    const std::string text = client.memory_report({{"layers.0.w1", whole}});
    for (const char* device : {"node 0 device 0", "node 0 device 1", "node 1 device 2", "node 1 device 3"}) {
      const size_t at = text.find(device);
      ASSERT_NE(at, std::string::npos) << text;
      const size_t first = text.find(" 1.0 MiB  layers.0.w1, ", at);
      const size_t second = text.find(" 256.0 KiB  ", at), third = text.find(" 1.0 KiB  ", at);
      ASSERT_NE(first, std::string::npos) << text;
      ASSERT_NE(second, std::string::npos) << text;
      ASSERT_NE(third, std::string::npos) << text;
      EXPECT_LT(first, second) << "the largest first";
      EXPECT_LT(second, third);
    }
    EXPECT_NE(text.find("made by [redistribute] called at "), std::string::npos) << text;
    EXPECT_NE(text.find("made by [full] called at "), std::string::npos) << text;
    EXPECT_NE(text.find("sight_test.cc:"), std::string::npos) << text;
  });
}

TEST(MemoryReport, CountsAStorageOnceAndKnowsTheMakerOfAReusedSlot) {
  on_two_nodes([](Client& client) {
    Tensor x = full({1024, 256}, 1.0, sharded());
    x = x.redistribute({Replicate()});
    x = x.redistribute({Shard(1)});
    const Tensor again = x.redistribute({Shard(1)});  // the same value
    const std::string text = client.memory_report();
    EXPECT_NE(text.find("in 1 tensors"), std::string::npos) << text;
    EXPECT_EQ(text.find("[full]"), std::string::npos) << text;
  });
}

TEST(DeviceMemory, WhatDevicesOfANodeGetAsOneStorageIsChargedToTheFirstOfThem) {
  std::vector<std::string> words = {"program", "--devices=3", "--passes=none"};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::function<void(Client&)> program = [](Client& client) {
    const DeviceMesh first("cpu", {1}, {0}), others("cpu", {2}, {1, 2});
    Tensor x = full({256}, 1.0, {.mesh = first}).redistribute(others, {Replicate()});
    client.synchronize();
    // The source's, when that was still there when they took it (docs/roadmap.md, known gaps).
    const std::vector<int64_t> bytes = client.stats().bytes_in_use_per_device;
    EXPECT_EQ(bytes[0] + bytes[1], 1024);
    EXPECT_EQ(bytes[2], 0);
    // While its source is there it is the source's.
    const Tensor source = full({256}, 1.0, {.mesh = first});
    x = source.redistribute(others, {Replicate()});
    client.synchronize();
    EXPECT_EQ(client.stats().bytes_in_use_per_device, (std::vector<int64_t>{1024, 0, 0}));
    x = {};
    client.synchronize();
    EXPECT_EQ(client.stats().bytes_in_use_per_device, (std::vector<int64_t>{1024, 0, 0}));
  };
  EXPECT_EQ(run(static_cast<int>(words.size()), pointers.data(), program), 0);
}

TEST(OutOfMemory, SaysWhatTheDeviceHolds) {
  on_two_nodes([](Client&) {
    const Tensor kept = full({1024, 256}, 1.0, sharded());
    static_cast<void>(kept.to_host());
    const Tensor too_large = full({int64_t{1} << 50}, 1.0, sharded());
    try {
      static_cast<void>(too_large.to_host_local(2));
      FAIL() << "no error";
    } catch (const RuntimeFault& fault) {
      const std::string text = fault.what();
      EXPECT_NE(text.find("[full] failed on node "), std::string::npos) << text;
      EXPECT_NE(text.find("out of memory"), std::string::npos) << text;
      EXPECT_NE(text.find("holds 256.0 KiB (peak 256.0 KiB) in 1 tensors\n"), std::string::npos) << text;
      EXPECT_NE(text.find("made by [full] called at "), std::string::npos) << text;
    }
  });
}

TEST(Profile, CountsEveryDevicesPartOfEveryCall) {
  on_two_nodes([](Client& client) {
    EXPECT_THROW(client.profile(), UserError);
    Tensor x = full({1024, 256}, 1.0, sharded());
    client.start_profile();
    for (int i = 0; i < 10; ++i) x = x.redistribute({Replicate()}).redistribute({Shard(0)});
    const Tensor y = full({64}, 1.0, sharded());
    const Profile profile = client.profile();
    std::map<std::string, ProfileEntry> by_name;
    for (const ProfileEntry& entry : profile.operators) by_name[entry.name] = entry;
    EXPECT_EQ(by_name.at("full").calls, 4) << "not the one before the start";
    EXPECT_EQ(by_name.at("full").bytes, 64 * 4);
    EXPECT_EQ(by_name.at("redistribute").calls, 20 * 4);
    EXPECT_EQ(by_name.at("redistribute").bytes, 10 * (4 + 1) * int64_t{1024} * 256 * 4);
    EXPECT_GT(by_name.at("redistribute").wait_s, 0);
    EXPECT_GT(profile.window_s, 0);
    ASSERT_EQ(profile.busy_share_per_device.size(), 4u);
    double busy_s = 0, run_s = 0;
    for (double share : profile.busy_share_per_device) {
      EXPECT_GT(share, 0);
      EXPECT_LE(share, 1);
      busy_s += share * profile.window_s;
    }
    for (const ProfileEntry& entry : profile.operators) run_s += entry.run_s;
    EXPECT_LE(busy_s, 4 * profile.window_s);
    EXPECT_NEAR(busy_s, run_s, 0.2 * run_s + 1e-3) << "windows of devices differ a little";
    const std::string table = profile_table(profile);
    EXPECT_NE(table.find("redistribute"), std::string::npos) << table;
    // Back to a shard every device only drops what isn't its own.
    EXPECT_NE(table.find("\nmoved between devices "), std::string::npos) << table;
    EXPECT_NE(table.find("\nall-gather "), std::string::npos) << table;
    EXPECT_EQ(table.find("\nslice "), std::string::npos) << table;
    // A new start forgets what was counted.
    client.start_profile();
    EXPECT_TRUE(client.profile().operators.empty());
  });
}

}  // namespace
}  // namespace dtorch
