// What is told of GPUs, from a machine of three that a table and a folder play.
#include "runtime/gpu/gpu_devices.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

// Handles are numbers + 1. GPUs 0 and 1 are joined by NVLink, 2 sits behind another processor and has secrets.
size_t number_of(void* handle) { return reinterpret_cast<uintptr_t>(handle) - 1; }
int text(char* to, unsigned size, const std::string& from) {
  std::snprintf(to, size, "%s", from.c_str());
  return 0;
}
NvmlFunctions fake_nvml() {
  NvmlFunctions nvml;
  nvml.init = [] { return 0; };
  nvml.shutdown = [] { return 0; };
  nvml.error_string = [](int code) { return code == 9 ? "Driver Not Loaded" : "Unknown Error"; };
  nvml.count = [](unsigned* count) {
    *count = 3;
    return 0;
  };
  nvml.handle = [](unsigned i, void** handle) {
    *handle = reinterpret_cast<void*>(uintptr_t{i} + 1);
    return 0;
  };
  nvml.name = [](void*, char* to, unsigned size) { return text(to, size, "NVIDIA H200"); };
  nvml.uuid = [](void* of, char* to, unsigned size) {
    return text(to, size, "GPU-" + std::string(4, static_cast<char>('a' + number_of(of))));
  };
  nvml.memory = [](void* of, NvmlFunctions::Memory* memory) {
    if (number_of(of) == 2) return 3;
    *memory = {150ull << 30, 149ull << 30, 1ull << 30};
    return 0;
  };
  nvml.pci = [](void* of, NvmlFunctions::Pci* pci) {
    std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%zuB:00.0", number_of(of) + 1);
    return 0;
  };
  nvml.link_state = [](void*, unsigned link, unsigned* active) {
    *active = link < 6;
    return link < 18 ? 0 : 2;
  };
  nvml.link_version = [](void*, unsigned, unsigned* version) {
    *version = 4;
    return 0;
  };
  nvml.peer_status = [](void* a, void* b, int, int* status) {
    *status = number_of(a) < 2 && number_of(b) < 2 ? 0 : 5;
    return 0;
  };
  nvml.common_ancestor = [](void*, void*, int* level) {
    *level = 50;
    return 0;
  };
  return nvml;
}

class GpuDevices : public testing::Test {
 protected:
  GpuDevices() : sysfs_(fs::temp_directory_path() / ("dtorch_sysfs." + std::to_string(::getpid()))) {
    const fs::path first = sysfs_ / "bus/pci/devices/0000:1b:00.0", third = sysfs_ / "bus/pci/devices/0000:3b:00.0";
    fs::create_directories(first);
    fs::create_directories(third);
    std::ofstream(first / "numa_node") << "0\n";
    std::ofstream(first / "local_cpulist") << "0-3,8-9\n";
    std::ofstream(third / "numa_node") << "-1\n";
  }
  ~GpuDevices() override { fs::remove_all(sysfs_); }
  const fs::path sysfs_;
};

TEST_F(GpuDevices, AreToldWithMemoryPlaceAndLinks) {
  const GpuList list = list_gpus(fake_nvml(), sysfs_);
  EXPECT_EQ(list.problem, "");
  EXPECT_EQ(
      describe_gpus(list.gpus),
      "GPU 0: NVIDIA H200 (0000:1b:00.0), 150.0 GiB, 149.0 free, NUMA node 0, cores 0-3,8-9; to GPU 1: NVLink 4 x "
      "6, to GPU 2: other NUMA node\n"
      "GPU 1: NVIDIA H200 (0000:2b:00.0), 150.0 GiB, 149.0 free; to GPU 0: NVLink 4 x 6, to GPU 2: other NUMA node\n"
      "GPU 2: NVIDIA H200 (0000:3b:00.0), 0.0 GiB, 0.0 free; to GPU 0: other NUMA node, to GPU 1: other NUMA node\n");
}

TEST_F(GpuDevices, AreThoseThatCudaWouldShow) {
  const std::vector<GpuDevice> all = list_gpus(fake_nvml(), sysfs_).gpus;
  using Chosen = std::vector<size_t>;
  EXPECT_EQ(visible_gpus(all, std::nullopt), (Chosen{0, 1, 2}));
  EXPECT_EQ(visible_gpus(all, ""), Chosen{});
  EXPECT_EQ(visible_gpus(all, "2,0"), (Chosen{2, 0}));
  EXPECT_EQ(visible_gpus(all, "1,7,0"), Chosen{1});
  EXPECT_EQ(visible_gpus(all, "-1"), Chosen{});
  EXPECT_EQ(visible_gpus(all, "GPU-cc, GPU-a"), (Chosen{2, 0}));
  EXPECT_EQ(visible_gpus(all, "1,1"), Chosen{1});
  EXPECT_EQ(visible_gpus(all, "99999999999999999999"), Chosen{});
}

TEST_F(GpuDevices, ThatCantBeSeenHaveAReason) {
  NvmlFunctions nvml = fake_nvml();
  nvml.handle = [](unsigned i, void**) { return i == 1 ? 999 : 0; };
  EXPECT_EQ(list_gpus(nvml, sysfs_).problem, "NVML, device 1: Unknown Error");
  nvml.init = [] { return 9; };
  EXPECT_EQ(list_gpus(nvml, sysfs_).problem, "NVML doesn't start: Driver Not Loaded");
}

TEST(CpuList, IsReadOrRefused) {
  using Cores = std::vector<int32_t>;
  EXPECT_EQ(parse_cpu_list("0-2,5"), (Cores{0, 1, 2, 5}));
  EXPECT_EQ(parse_cpu_list(""), Cores{});
  for (const char* bad : {"a", "3-", "2-1", "1;2", "-1", "0-99999999"}) EXPECT_EQ(parse_cpu_list(bad), Cores{}) << bad;
}

TEST(NearGpu, BindsTheThreadToAllowedCoresAndGivesThemBack) {
  cpu_set_t before, during, after;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int32_t core = 0;
  while (!CPU_ISSET(static_cast<size_t>(core), &before)) ++core;
  {
    const NearGpu near({core, CPU_SETSIZE - 1});
    EXPECT_TRUE(near.is_bound());
    ASSERT_EQ(::sched_getaffinity(0, sizeof during, &during), 0);
    EXPECT_EQ(CPU_COUNT(&during), 1);
    EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(core), &during));
  }
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_FALSE(NearGpu({}).is_bound());
}

}  // namespace
}  // namespace dtorch::test
