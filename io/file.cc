#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL  // no library of it to link
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch::io {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw RuntimeFault(what + " '" + path + "': " + std::strerror(errno));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, mode_t mode = 0666)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {
    if (fd_ < 0) fail("cannot open", path);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path.string()) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail("cannot open", path_);
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor_);
    throw RuntimeFault("'" + path_ + "' isn't a regular file");
  }
  size_ = info.st_size;
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(int64_t offset, void* data, int64_t num_bytes) const {
  auto* to = static_cast<char*>(data);
  while (num_bytes > 0) {
    const ssize_t got = ::pread(descriptor_, to, static_cast<size_t>(num_bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", path_);
    if (got == 0) {
      throw RuntimeFault("'" + path_ + "' ends at byte " + std::to_string(offset) + ", " + std::to_string(num_bytes) +
                         " more were expected");
    }
    to += got;
    offset += got;
    num_bytes -= got;
  }
}

void sync_path(const std::filesystem::path& path) {
  Descriptor file(path.string(), O_RDONLY);
  if (::fsync(file.get()) != 0) fail("cannot sync", path.string());
}

void commit_rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("cannot rename to '" + to.string() + "' from", from.string());
  sync_path(to.has_parent_path() ? to.parent_path() : ".");
}

void write_file(const std::filesystem::path& path, const void* data, size_t num_bytes) {
  Descriptor file(path.string(), O_WRONLY | O_CREAT | O_TRUNC);
  const auto* from = static_cast<const char*>(data);
  for (size_t done = 0; done < num_bytes;) {
    const ssize_t wrote = ::write(file.get(), from + done, num_bytes - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("cannot write", path.string());
    done += static_cast<size_t>(wrote);
  }
  if (::fsync(file.get()) != 0) fail("cannot sync", path.string());
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  write_file(path, text.data(), text.size());
}

std::string read_file(const std::filesystem::path& path) {
  InputFile file(path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  return text;
}

std::string hash_file(const std::filesystem::path& path) {
  InputFile file(path);
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  DTORCH_CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK, "hash state");
  std::vector<char> buffer(1 << 20);
  for (int64_t at = 0; at < file.size();) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(buffer.size()), file.size() - at);
    file.read(at, buffer.data(), count);
    DTORCH_CHECK(XXH3_128bits_update(state.get(), buffer.data(), static_cast<size_t>(count)) == XXH_OK, "hash");
    at += count;
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state.get()));
  std::string text;
  for (unsigned char byte : canonical.digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace dtorch::io
