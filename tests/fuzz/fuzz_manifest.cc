// Fuzz target for checkpoint manifests: the input is a manifest.json beside an empty model.h5. A checkpoint is either
// complete or passed over; nothing is thrown.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/checkpoint.h"
#include "runtime/base/log.h"

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "dtorch_fuzz_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", name, {});
    path_ = name;
    std::ofstream(path_ / "model.h5").close();
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dtorch;
  static const Folder folder;
  set_log_level(LogLevel::kOff);
  std::ofstream(folder.path() / "manifest.json", std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  if (const auto found = checkpoint::latest(folder.path())) DTORCH_CHECK(found->step >= 0, "a negative step");
  return 0;
}
