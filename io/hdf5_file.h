// HDF5 behind one small door: whole tensors as data sets, boxes of them, and named attributes. All calls of a process
// take one lock. Half types and bool are stored as their bits with an attribute dtorch_dtype. Failures are RuntimeFault
// with the file's name, the data set and HDF5's own reason.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mesh/dtype.h"
#include "mesh/shape.h"
#include "runtime/client/host_tensor.h"

namespace dtorch::io {

struct DatasetInfo {
  Shape shape;
  DType dtype = kFloat32;
  int64_t file_offset = -1;  // of contiguous data sets; -1: chunked
};

class Hdf5File {
 public:
  enum class Mode : uint8_t { kRead, kCreate };
  Hdf5File(const std::filesystem::path& path, Mode mode);
  ~Hdf5File();  // closes without checking; call close() after writing
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  // Of a new file: writes it (it is made in memory) and syncs it. Throws when that fails (a full disk).
  void close();

  // Names with '/' make groups. Chunked with a fletcher32 checksum unless `contiguous`.
  void write(const std::string& name, const HostTensor& tensor, bool contiguous = false);
  DatasetInfo info(const std::string& name) const;
  std::vector<std::string> dataset_names() const;  // sorted, full paths without the leading '/'
  // The elements of `box`, packed row-major, in the data set's dtype.
  void read_box(const std::string& name, const Box& box, void* packed) const;

  void set_attribute(const std::string& name, int64_t value);
  void set_attribute(const std::string& name, const std::string& value);
  std::optional<int64_t> int_attribute(const std::string& name) const;
  std::optional<std::string> string_attribute(const std::string& name) const;

 private:
  std::string path_;
  bool creates_ = false;
  int64_t file_ = -1;
};

}  // namespace dtorch::io
