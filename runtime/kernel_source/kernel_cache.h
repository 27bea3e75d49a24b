// Compiled kernels by key, in memory and in a folder, so that a source is compiled once a machine. Thread-safe; also
// several processes may share the folder.
//
//   file    = "dtorch-kernel 1\n" key-hash " " code-bytes " " code-hash "\n" code      hashes: 32 hexadecimal digits
//   name    = key-hash ".bin"
//
// A file is written beside its name and renamed, so that nobody sees half of it. One that doesn't fit its own first
// lines is made anew.
#pragma once
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace dtorch::kernel_source {

class KernelCache {
 public:
  using Code = std::shared_ptr<const std::string>;
  struct Counts {
    int64_t compiled = 0, from_memory = 0, from_folder = 0;
    int64_t folder_failures = 0;  // files that couldn't be read or written; the kernel is compiled then
  };
  // An empty path: in memory only. The folder is made with the first kernel.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // key: everything that decides the code. `compile` may throw; nothing is kept then. Others who want the same key
  // meanwhile compile it, too.
  Code find_or_compile(const std::string& key, const std::function<std::string()>& compile);
  Counts counts() const;

  // DTORCH_KERNEL_CACHE, else dtorch/kernels in XDG_CACHE_HOME or ~/.cache; empty when the variable says "off" or there
  // is no home.
  static std::filesystem::path default_folder();

 private:
  Code read(const std::string& hash);
  void write(const std::string& hash, const std::string& code);

  const std::filesystem::path folder_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Code> codes_;  // by key; under mutex_
  std::atomic<int64_t> compiled_{0}, from_memory_{0}, from_folder_{0}, folder_failures_{0};
};

}  // namespace dtorch::kernel_source
