// The GPUs of this machine as NVIDIA's management library (NVML) knows them, and where they sit: links between them,
// the NUMA node. Needs no CUDA context, so that asking costs a GPU no memory. Pure but for the functions of the last
// part.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace dtorch {

struct GpuDevice {
  struct Link {
    size_t to = 0;     // index in the list
    std::string kind;  // "NVLink 4 x 18", "PCIe, one switch", "other NUMA node"
  };
  std::string name;
  std::string uuid;    // "GPU-..."
  std::string bus_id;  // "0000:3b:00.0", as /sys has it
  int64_t memory_bytes = 0, free_bytes = 0;
  int32_t numa_node = -1;      // -1: not known
  std::vector<int32_t> cores;  // near it; none: not known
  std::vector<Link> links;
};

// "0-3,8" -> 0 1 2 3 8; none for text of another form.
std::vector<int32_t> parse_cpu_list(const std::string& text);
// "00000000:3B:00.0" -> "0000:3b:00.0".
std::string sysfs_bus_id(const std::string& nvml_bus_id);
// Which of the machine's GPUs a process sees, in its order: numbers or beginnings of UUIDs, up to the first that
// nothing fits, as CUDA does it. No text: all.
std::vector<size_t> visible_gpus(const std::vector<GpuDevice>& all, const std::optional<std::string>& visible);
// A line a GPU: "GPU 0: NVIDIA H200 (0000:3b:00.0), 139.8 GiB, 139.2 free, NUMA node 0, cores 0-31; to GPU 1: NVLink 4
// x 18".
std::string describe_gpus(const std::vector<GpuDevice>& gpus);

// NVML's functions, so that a test can stand in for it. Their numbers are NVML's own.
struct NvmlFunctions {
  using Device = void*;
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  };
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*pci)(Device, Pci*) = nullptr;
  int (*link_state)(Device, unsigned, unsigned*) = nullptr;
  int (*link_version)(Device, unsigned, unsigned*) = nullptr;
  int (*peer_status)(Device, Device, int, int*) = nullptr;
  int (*common_ancestor)(Device, Device, int*) = nullptr;
};

struct GpuList {
  std::vector<GpuDevice> gpus;
  std::string problem;  // why there are none to see; "" when NVML answered
};
// All of the machine. sysfs: "/sys", or a test's.
GpuList list_gpus(const NvmlFunctions& nvml, const std::filesystem::path& sysfs);

// Those that this process sees (CUDA_VISIBLE_DEVICES). Loads NVML.
GpuList list_visible_gpus();

// Those that the calling thread may run on; none where the system doesn't say.
std::vector<int32_t> allowed_cores();

// The calling thread runs on cores near a GPU from now on, those that it was allowed before; as before again when the
// object dies, on the same thread. Does nothing where none of them is allowed, or they aren't known.
class NearGpu {
 public:
  explicit NearGpu(const std::vector<int32_t>& cores);
  ~NearGpu();
  NearGpu(const NearGpu&) = delete;
  NearGpu& operator=(const NearGpu&) = delete;
  bool is_bound() const { return !before_.empty(); }

 private:
  std::vector<int32_t> before_;
};

// Of a PCI device, by sysfs_bus_id(); -1 and none where /sys doesn't say.
int32_t numa_node_of(const std::filesystem::path& sysfs, const std::string& bus_id);
std::vector<int32_t> cores_near(const std::filesystem::path& sysfs, const std::string& bus_id);

}  // namespace dtorch
