#include "runtime/gpu/gpu_devices.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/gpu/shared_library.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

constexpr int kOverNvlink = 2;        // NVML_P2P_CAPS_INDEX_NVLINK
constexpr unsigned kMaxNvlinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr int32_t kMaxCores = 1 << 16;

std::string first_line(const fs::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

// What lies between two GPUs without NVLink: nvmlGpuTopologyLevel_t.
std::string name_of_path(int level) {
  if (level <= 0) return "same board";
  if (level <= 10) return "PCIe, one switch";
  if (level <= 20) return "PCIe, several switches";
  if (level <= 30) return "PCIe, one root";
  if (level <= 40) return "one NUMA node";
  return "other NUMA node";
}

class Lister {
 public:
  Lister(const NvmlFunctions& nvml, const fs::path& sysfs) : nvml_(nvml), sysfs_(sysfs) {}

  GpuList list() {
    unsigned count = 0;
    GpuList result;
    if (!is_ok(nvml_.count(&count), "count of devices", result)) return result;
    for (unsigned i = 0; i < count; ++i) {
      NvmlFunctions::Device handle = nullptr;
      if (!is_ok(nvml_.handle(i, &handle), fmt::format("device {}", i), result)) return result;
      handles_.push_back(handle);
      result.gpus.push_back(look_at(handle));
    }
    for (size_t from = 0; from < handles_.size(); ++from) {
      for (size_t to = 0; to < handles_.size(); ++to) {
        if (from != to) result.gpus[from].links.push_back({to, link_between(from, to)});
      }
    }
    return result;
  }

 private:
  bool is_ok(int code, const std::string& what, GpuList& result) const {
    if (code == 0) return true;
    result.problem = fmt::format("NVML, {}: {}", what, nvml_.error_string(code));
    return false;
  }

  // What can't be told (a container may hide it) stays empty.
  GpuDevice look_at(NvmlFunctions::Device handle) const {
    GpuDevice gpu;
    std::array<char, 96> text = {};
    if (nvml_.name(handle, text.data(), text.size()) == 0) gpu.name = text.data();
    text = {};
    if (nvml_.uuid(handle, text.data(), text.size()) == 0) gpu.uuid = text.data();
    NvmlFunctions::Memory memory = {};
    if (nvml_.memory(handle, &memory) == 0) {
      gpu.memory_bytes = static_cast<int64_t>(memory.total);
      gpu.free_bytes = static_cast<int64_t>(memory.free);
    }
    NvmlFunctions::Pci pci = {};
    if (nvml_.pci(handle, &pci) == 0) {
      gpu.bus_id = sysfs_bus_id(pci.bus_id);
      gpu.numa_node = numa_node_of(sysfs_, gpu.bus_id);
      gpu.cores = cores_near(sysfs_, gpu.bus_id);
    }
    return gpu;
  }

  std::string link_between(size_t from, size_t to) const {
    int status = -1;
    if (nvml_.peer_status(handles_[from], handles_[to], kOverNvlink, &status) == 0 && status == 0) {
      unsigned active = 0, version = 0;
      for (unsigned link = 0; link < kMaxNvlinks; ++link) {
        unsigned is_active = 0;
        if (nvml_.link_state(handles_[from], link, &is_active) != 0 || is_active == 0) continue;
        if (active++ == 0 && nvml_.link_version(handles_[from], link, &version) != 0) version = 0;
      }
      return version > 0 ? fmt::format("NVLink {} x {}", version, active) : "NVLink";
    }
    int level = 0;
    return nvml_.common_ancestor(handles_[from], handles_[to], &level) == 0 ? name_of_path(level) : "not known";
  }

  const NvmlFunctions& nvml_;
  const fs::path& sysfs_;
  std::vector<NvmlFunctions::Device> handles_;
};

bool run_on(const std::vector<int32_t>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int32_t core : cores) CPU_SET(static_cast<size_t>(core), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

std::string text_of_cores(const std::vector<int32_t>& cores) {
  std::string text;
  for (size_t first = 0, last = 0; first < cores.size(); first = last + 1) {
    last = first;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[first]);
    if (last > first) text += fmt::format("-{}", cores[last]);
  }
  return text;
}

}  // namespace

std::vector<int32_t> parse_cpu_list(const std::string& text) {
  std::vector<int32_t> cores;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    int32_t first = 0, last = 0;
    const char* const end = range.data() + range.size();
    std::from_chars_result read = std::from_chars(range.data(), end, first);
    if (read.ec != std::errc() || first < 0) return {};
    last = first;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || read.ptr != end || last < first || last >= kMaxCores) return {};
    for (int32_t core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

std::string sysfs_bus_id(const std::string& nvml_bus_id) {
  constexpr size_t kDomainDigits = 4;
  std::string id = nvml_bus_id;
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t colon = id.find(':');
  if (colon != std::string::npos && colon > kDomainDigits) id.erase(0, colon - kDomainDigits);
  return id;
}

std::vector<size_t> visible_gpus(const std::vector<GpuDevice>& all, const std::optional<std::string>& visible) {
  std::vector<size_t> chosen;
  if (!visible) {
    for (size_t i = 0; i < all.size(); ++i) chosen.push_back(i);
    return chosen;
  }
  std::istringstream words(*visible);
  for (std::string word; std::getline(words, word, ',');) {
    word.erase(std::remove(word.begin(), word.end(), ' '), word.end());
    size_t index = all.size();
    const bool is_number = !word.empty() && std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c); });
    if (is_number) {
      std::from_chars(word.data(), word.data() + word.size(), index);
    } else if (!word.empty()) {
      const auto fits = [&](const GpuDevice& gpu) { return gpu.uuid.starts_with(word); };
      index = static_cast<size_t>(std::ranges::find_if(all, fits) - all.begin());
    }
    if (index >= all.size() || std::ranges::find(chosen, index) != chosen.end()) break;
    chosen.push_back(index);
  }
  return chosen;
}

std::string describe_gpus(const std::vector<GpuDevice>& gpus) {
  constexpr double kGiB = 1 << 30;
  std::string text;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const GpuDevice& gpu = gpus[i];
    text += fmt::format("GPU {}: {} ({}), {:.1f} GiB, {:.1f} free", i, gpu.name.empty() ? "without a name" : gpu.name,
                        gpu.bus_id.empty() ? "place not known" : gpu.bus_id,
                        static_cast<double>(gpu.memory_bytes) / kGiB, static_cast<double>(gpu.free_bytes) / kGiB);
    if (gpu.numa_node >= 0) text += fmt::format(", NUMA node {}", gpu.numa_node);
    if (!gpu.cores.empty()) text += ", cores " + text_of_cores(gpu.cores);
    for (size_t k = 0; k < gpu.links.size(); ++k)
      text += fmt::format("{} to GPU {}: {}", k == 0 ? ";" : ",", gpu.links[k].to, gpu.links[k].kind);
    text += "\n";
  }
  return text;
}

GpuList list_gpus(const NvmlFunctions& nvml, const fs::path& sysfs) {
  const int code = nvml.init();
  if (code != 0) return {{}, fmt::format("NVML doesn't start: {}", nvml.error_string(code))};
  GpuList result = Lister(nvml, sysfs).list();
  nvml.shutdown();
  return result;
}

GpuList list_visible_gpus() {
  const SharedLibrary library({"libnvidia-ml.so.1"});
  if (!library) return {{}, "no NVIDIA driver is on this machine (" + library.error() + ")"};
  NvmlFunctions nvml;
  std::string missing;
  const auto take = [&]<class F>(F& function, const char* name) {
    function = library.function<F>(name);
    if (function == nullptr) missing = name;
  };
  take(nvml.init, "nvmlInit_v2");
  take(nvml.shutdown, "nvmlShutdown");
  take(nvml.error_string, "nvmlErrorString");
  take(nvml.count, "nvmlDeviceGetCount_v2");
  take(nvml.handle, "nvmlDeviceGetHandleByIndex_v2");
  take(nvml.name, "nvmlDeviceGetName");
  take(nvml.uuid, "nvmlDeviceGetUUID");
  take(nvml.memory, "nvmlDeviceGetMemoryInfo");
  take(nvml.pci, "nvmlDeviceGetPciInfo_v3");
  take(nvml.link_state, "nvmlDeviceGetNvLinkState");
  take(nvml.link_version, "nvmlDeviceGetNvLinkVersion");
  take(nvml.peer_status, "nvmlDeviceGetP2PStatus");
  take(nvml.common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  if (!missing.empty()) return {{}, "NVML has no " + missing};
  GpuList all = list_gpus(nvml, "/sys");
  std::optional<std::string> visible;
  if (const char* given = std::getenv("CUDA_VISIBLE_DEVICES")) visible = given;
  GpuList seen{{}, all.problem};
  const std::vector<size_t> chosen = visible_gpus(all.gpus, visible);
  for (size_t i : chosen) {
    GpuDevice gpu = all.gpus[i];
    std::vector<GpuDevice::Link> links;
    for (GpuDevice::Link& link : gpu.links) {
      const auto at = std::ranges::find(chosen, link.to);
      if (at != chosen.end()) links.push_back({static_cast<size_t>(at - chosen.begin()), std::move(link.kind)});
    }
    gpu.links = std::move(links);
    seen.gpus.push_back(std::move(gpu));
  }
  return seen;
}

int32_t numa_node_of(const fs::path& sysfs, const std::string& bus_id) {
  const std::string line = first_line(sysfs / "bus/pci/devices" / bus_id / "numa_node");
  int32_t node = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node);
  return error == std::errc() && end == line.data() + line.size() ? node : -1;
}

std::vector<int32_t> cores_near(const fs::path& sysfs, const std::string& bus_id) {
  return parse_cpu_list(first_line(sysfs / "bus/pci/devices" / bus_id / "local_cpulist"));
}

std::vector<int32_t> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int32_t> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

NearGpu::NearGpu(const std::vector<int32_t>& cores) {
  const std::vector<int32_t> allowed = allowed_cores();
  std::vector<int32_t> near;
  for (int32_t core : cores) {
    if (std::ranges::find(allowed, core) != allowed.end()) near.push_back(core);
  }
  if (!near.empty() && run_on(near)) before_ = allowed;
}

NearGpu::~NearGpu() {
  if (!before_.empty()) run_on(before_);
}

}  // namespace dtorch
