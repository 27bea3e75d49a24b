#include "runtime/launch/rank_report.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/gpu/gpu_devices.h"

extern char** environ;

namespace dtorch {

namespace {

constexpr const char* kSharedMemory = "/dev/shm";

// Variables that must agree over the ranks. What a launcher sets differently for every rank isn't among them.
constexpr const char* kWatchedVariables[] = {
    "DTORCH_",         "OMP_",       "MKL_",         "OPENBLAS_",    "NCCL_", "UCX_",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "OMPI_MCA_btl", "OMPI_MCA_pml", "HDF5_"};

std::map<std::string, std::string> watched_environment() {
  std::map<std::string, std::string> found;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view line(*at);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    for (const char* prefix : kWatchedVariables) {
      if (line.starts_with(prefix)) found.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return found;
}

std::string network_of(const ifaddrs& interface) {
  const auto& address = reinterpret_cast<const sockaddr_in*>(interface.ifa_addr)->sin_addr;
  const auto& mask = reinterpret_cast<const sockaddr_in*>(interface.ifa_netmask)->sin_addr;
  const uint32_t bits = ntohl(address.s_addr);
  return fmt::format("{} {}.{}.{}.{}/{}", interface.ifa_name, bits >> 24, bits >> 16 & 255, bits >> 8 & 255, bits & 255,
                     std::popcount(mask.s_addr));
}

std::vector<std::string> networks() {
  ifaddrs* all = nullptr;
  std::vector<std::string> found;
  if (::getifaddrs(&all) != 0) return found;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    const bool counts = at->ifa_addr != nullptr && at->ifa_netmask != nullptr && at->ifa_addr->sa_family == AF_INET &&
                        (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (counts) found.push_back(network_of(*at));
  }
  ::freeifaddrs(all);
  return found;
}

int64_t free_bytes(const char* path) {
  struct statvfs disk;
  if (::statvfs(path, &disk) != 0) return 0;
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

// Those of the driver, without the ones that CUDA_VISIBLE_DEVICES hides by number.
std::vector<std::string> visible_gpus() {
  namespace fs = std::filesystem;
  std::vector<std::string> all;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none))
    all.push_back(entry.path().filename());
  std::sort(all.begin(), all.end());
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return all;
  std::vector<std::string> chosen;
  std::istringstream words(visible);
  for (std::string word; std::getline(words, word, ',');) {
    const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    const size_t index = is_number && word.size() < 6 ? std::stoul(word) : all.size();
    if (index < all.size())
      chosen.push_back(all[index]);
    else if (!is_number)
      chosen.push_back(word);  // an identity as it is
  }
  return chosen;
}

}  // namespace

RankReport look_here() {
  RankReport report;
  char host[256] = {};
  report.host = ::gethostname(host, sizeof host - 1) == 0 ? host : "unknown";
  report.pid = ::getpid();
  report.version = std::string("DTorch ") + DTORCH_VERSION;
  report.machine_cores = static_cast<int32_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  report.cores = allowed_cores();
  report.networks = networks();
  report.shared_memory_free_bytes = free_bytes(kSharedMemory);
  report.gpus = visible_gpus();
  if (!report.gpus.empty()) report.gpu_text = describe_gpus(list_visible_gpus().gpus);
  report.environment = watched_environment();
  return report;
}

std::string to_text(const RankReport& report) {
  return nlohmann::json{{"rank", report.rank},
                        {"host", report.host},
                        {"pid", report.pid},
                        {"version", report.version},
                        {"mpi", report.mpi},
                        {"machine_cores", report.machine_cores},
                        {"cores", report.cores},
                        {"networks", report.networks},
                        {"shared_memory_free_bytes", report.shared_memory_free_bytes},
                        {"gpus", report.gpus},
                        {"gpu_text", report.gpu_text},
                        {"environment", report.environment},
                        {"folder_problem", report.folder_problem}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankReport from_text(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    RankReport report;
    json.at("rank").get_to(report.rank);
    json.at("host").get_to(report.host);
    json.at("pid").get_to(report.pid);
    json.at("version").get_to(report.version);
    json.at("mpi").get_to(report.mpi);
    json.at("machine_cores").get_to(report.machine_cores);
    json.at("cores").get_to(report.cores);
    json.at("networks").get_to(report.networks);
    json.at("shared_memory_free_bytes").get_to(report.shared_memory_free_bytes);
    json.at("gpus").get_to(report.gpus);
    json.at("gpu_text").get_to(report.gpu_text);
    json.at("environment").get_to(report.environment);
    json.at("folder_problem").get_to(report.folder_problem);
    return report;
  } catch (const nlohmann::json::exception& error) {
    throw DecodeError(std::string("a rank's report doesn't decode (another build on that node?): ") + error.what());
  }
}

}  // namespace dtorch
