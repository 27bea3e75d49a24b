// Plain files with every return code checked, and what must be durable: temporary name, fsync, rename, fsync of the
// directory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace dtorch::io {

// A file opened for reading; closes itself. Any thread (pread only).
class InputFile {
 public:
  explicit InputFile(
      const std::filesystem::path& path);  // throws RuntimeFault: cannot open 'x': No such file or directory
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  int64_t size() const { return size_; }
  // Throws RuntimeFault on errors and at an early end of the file.
  void read(int64_t offset, void* data, int64_t num_bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// Flushes a file or directory to the disk. Throws RuntimeFault.
void sync_path(const std::filesystem::path& path);
// Renames and makes the new name durable.
void commit_rename(const std::filesystem::path& from, const std::filesystem::path& to);
// Writes a whole small file durably (without renaming).
void write_file(const std::filesystem::path& path, const void* data, size_t num_bytes);
void write_file(const std::filesystem::path& path, const std::string& text);
std::string read_file(const std::filesystem::path& path);
// XXH3-128 of a file's bytes as 32 hexadecimal digits.
std::string hash_file(const std::filesystem::path& path);

}  // namespace dtorch::io
