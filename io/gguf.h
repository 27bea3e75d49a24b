// GGUF files (version 2 and 3, little-endian): magic "GGUF", u32 version, u64 tensors, u64 keys; the keys (string name,
// u32 type, value); the tensors (string name, u32 dims, u64 sizes innermost first, u32 encoding, u64 offset); padding
// to `general.alignment`; the data. Strings are u64 length and bytes. Everything is checked against the file before it
// is used. Source of the format: the GGUF specification of ggml.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch::gguf {

// How a tensor's elements are stored; the values are the file's codes.
enum class Encoding : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,  // blocks of 32: fp16 d, 16 bytes of nibbles; w = d (q - 8)
  kQ4_1 = 3,  // blocks of 32: fp16 d, fp16 m, 16 bytes of nibbles (low ones first); w = d q + m
  kQ8_0 = 8,  // blocks of 32: fp16 d, 32 int8; w = d q
  kBF16 = 30,
};
int64_t block_elements(Encoding encoding);
int64_t block_bytes(Encoding encoding);

struct Entry {
  Shape shape;  // outermost first
  Encoding encoding = Encoding::kF32;
  int64_t offset = 0;  // of the first byte, from the start of the file
};

using Value = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                           std::vector<std::string>>;

struct LoadOptions {
  // Rows of each head are stored as pairs (2 i, 2 i + 1) of a rotary embedding that rotates neighbours; they are
  // brought to halves. Rows a head; 0: as stored.
  int64_t rotary_head_rows = 0;
};

class File {
 public:
  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, Value>& values() const { return values_; }
  // Throw KeyError when the key is missing, DecodeError when it is of another type.
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  const std::vector<int64_t>& integers(const std::string& key) const;

  // One tensor, decoded, seen as `shape` (the same elements in the same order), with a layout; each device reads its
  // own part. Throws KeyError when there is none of that name.
  Tensor load(const std::string& name, const Shape& shape, DType dtype, const Layout& layout,
              const LoadOptions& options = {}, Where where = Where::current()) const;

 private:
  friend File open(const std::filesystem::path& path);
  std::filesystem::path path_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, Value> values_;
};

// Throws RuntimeFault (unreadable) or DecodeError that says what is wrong.
File open(const std::filesystem::path& path);

}  // namespace dtorch::gguf
