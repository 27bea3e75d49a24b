// safetensors files: 8 bytes little-endian length of the header, a JSON header {name: {dtype, shape, data_offsets}},
// the data. Everything in the header is checked against the file before anything is used.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "mesh/dtype.h"
#include "nn/module.h"

namespace dtorch::safetensors {

struct Entry {
  Shape shape;
  DType dtype = kFloat32;
  int64_t offset = 0;  // of the first byte, from the start of the file
};

class File {
 public:
  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::filesystem::path& path() const { return path_; }
  // For Module::load_state_dict: each device reads its own slice, converted to the parameter's dtype.
  operator nn::Module::Source() const;
  // One tensor with a layout; throws KeyError when there is none of that name.
  Tensor load(const std::string& name, DType dtype, const Layout& layout, Where where = Where::current()) const;

 private:
  friend File open(const std::filesystem::path& path);
  std::filesystem::path path_;
  std::map<std::string, Entry> entries_;
};

// Throws RuntimeFault (unreadable) or DecodeError that says what is wrong with the header.
File open(const std::filesystem::path& path);

}  // namespace dtorch::safetensors
