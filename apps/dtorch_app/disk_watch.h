// Whether the disk that checkpoints go to still has room for the next one; looked at now and then, by rank 0.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace dtorch::app {

class DiskWatch {
 public:
  // An empty folder: there is always room. `min_free_bytes` 0: a quarter more than the last checkpoint takes, as long
  // as none is known anything.
  DiskWatch(std::filesystem::path folder, int64_t min_free_bytes);
  // It is on the disk: its size is what the next one will take. The next shortage() looks anew.
  void saved(const std::filesystem::path& checkpoint);
  // Looks at most once a second. "" while there is room, else how much is free and how much is needed. Not to be asked
  // while a checkpoint is being written: what it takes isn't free any more, what it replaces not yet.
  std::string shortage();

 private:
  const std::filesystem::path folder_;
  const int64_t min_free_bytes_;
  int64_t needed_bytes_;
  std::chrono::steady_clock::time_point next_look_{};
  std::string shortage_;
};

}  // namespace dtorch::app
