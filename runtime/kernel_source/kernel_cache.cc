#include "runtime/kernel_source/kernel_cache.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace dtorch::kernel_source {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstLine = "dtorch-kernel 1";

std::string hash_of(const std::string& text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

KernelCache::Code KernelCache::find_or_compile(const std::string& key, const std::function<std::string()>& compile) {
  {
    std::lock_guard lock(mutex_);
    const auto found = codes_.find(key);
    if (found != codes_.end()) {
      ++from_memory_;
      return found->second;
    }
  }
  const std::string hash = hash_of(key);
  Code code = folder_.empty() ? nullptr : read(hash);
  if (code == nullptr) {
    code = std::make_shared<const std::string>(compile());
    ++compiled_;
    if (!folder_.empty()) write(hash, *code);
  } else {
    ++from_folder_;
  }
  std::lock_guard lock(mutex_);
  return codes_.emplace(key, code).first->second;
}

KernelCache::Code KernelCache::read(const std::string& hash) {
  std::ifstream file(folder_ / (hash + ".bin"), std::ios::binary);
  if (!file) return nullptr;
  std::string line, key_hash, code_hash;
  size_t size = 0;
  std::getline(file, line);
  std::string second;
  std::getline(file, second);
  std::istringstream words(second);
  words >> key_hash >> size >> code_hash;
  std::string code{std::istreambuf_iterator<char>(file), {}};
  if (line == kFirstLine && words && key_hash == hash && code.size() == size && hash_of(code) == code_hash)
    return std::make_shared<const std::string>(std::move(code));
  ++folder_failures_;
  return nullptr;
}

void KernelCache::write(const std::string& hash, const std::string& code) {
  static std::atomic<uint64_t> number{0};
  std::error_code error;
  fs::create_directories(folder_, error);
  const fs::path path = folder_ / (hash + ".bin");
  const fs::path beside = folder_ / fmt::format("{}.{}.{}.partial", hash, ::getpid(), number++);
  std::ofstream file(beside, std::ios::binary);
  file << kFirstLine << '\n' << hash << ' ' << code.size() << ' ' << hash_of(code) << '\n' << code;
  file.close();
  if (file) fs::rename(beside, path, error);
  if (!file || error) {
    ++folder_failures_;  // the next process compiles it again
    fs::remove(beside, error);
  }
}

KernelCache::Counts KernelCache::counts() const {
  return {.compiled = compiled_,
          .from_memory = from_memory_,
          .from_folder = from_folder_,
          .folder_failures = folder_failures_};
}

fs::path KernelCache::default_folder() {
  if (const char* chosen = std::getenv("DTORCH_KERNEL_CACHE"); chosen != nullptr && *chosen != '\0')
    return std::string(chosen) == "off" ? fs::path() : fs::path(chosen);
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return fs::path(cache) / "dtorch" / "kernels";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home != '\0' ? fs::path(home) / ".cache" / "dtorch" / "kernels" : fs::path();
}

}  // namespace dtorch::kernel_source
