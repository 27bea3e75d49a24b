#include "apps/dtorch_app/disk_watch.h"

#include <utility>

namespace dtorch::app {

namespace fs = std::filesystem;

DiskWatch::DiskWatch(fs::path folder, int64_t min_free_bytes)
    : folder_(std::move(folder)), min_free_bytes_(min_free_bytes), needed_bytes_(min_free_bytes) {}

void DiskWatch::saved(const fs::path& checkpoint) {
  // What was free while it was written, and before older ones were removed, no longer counts.
  next_look_ = {};
  shortage_.clear();
  if (min_free_bytes_ > 0) return;
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoint, error)) {
    const auto size = entry.file_size(error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  needed_bytes_ = bytes + bytes / 4;
}

std::string DiskWatch::shortage() {
  const auto now = std::chrono::steady_clock::now();
  if (folder_.empty() || needed_bytes_ == 0 || now < next_look_) return shortage_;
  next_look_ = now + std::chrono::seconds(1);
  std::error_code error;
  const fs::space_info space = fs::space(folder_, error);
  // A file system that doesn't tell is left alone: the save itself will say what is wrong.
  const bool short_of = !error && space.available < static_cast<uintmax_t>(needed_bytes_);
  shortage_ = short_of ? std::to_string(space.available >> 20) + " MiB are free where '" + folder_.string() +
                             "' lies, " + std::to_string(needed_bytes_ >> 20) + " MiB are needed"
                       : "";
  return shortage_;
}

}  // namespace dtorch::app
