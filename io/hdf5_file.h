// HDF5 behind one small door: whole tensors as data sets, boxes of them, and named attributes. All calls of a process
// take one lock. Half types and bool are stored as their bits with an attribute dtorch_dtype. Failures are RuntimeFault
// with the file's name, the data set and HDF5's own reason.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/slabs.h"
#include "mesh/dtype.h"
#include "mesh/shape.h"
#include "runtime/client/host_tensor.h"

namespace dtorch::io {

namespace hdf5 {
struct Sink;
}

// Elements of a chunk, at most.
inline constexpr int64_t kChunkElements = 1 << 18;

// What a virtual data set shows at `where`: the elements of a data set of `shape` of another file, in row-major order.
struct VirtualPart {
  Slab where;
  std::string file, dataset;  // the file's name beside this one
  Shape shape;
  std::optional<Box> box = {};  // of the data set; none: all of it
};

struct DatasetInfo {
  Shape shape;
  DType dtype = kFloat32;
  int64_t file_offset = -1;  // of contiguous data sets; -1: chunked
};

class Hdf5File {
 public:
  enum class Mode : uint8_t { kRead, kCreate };
  Hdf5File(const std::filesystem::path& path, Mode mode);  // kCreate replaces a file of that name
  ~Hdf5File();                                             // closes without checking; call close() after writing
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  // Of a new file: writes what is left and, unless told otherwise, syncs it. Throws when that or a write before failed
  // (a full disk).
  void close(bool sync = true);

  // Names with '/' make groups. Chunked with a fletcher32 checksum unless `contiguous`.
  void write(const std::string& name, const HostTensor& tensor, bool contiguous = false);
  // The same in pieces: an empty data set, then its boxes, packed row-major.
  void create(const std::string& name, const Shape& shape, DType dtype, bool contiguous = false);
  void write_box(const std::string& name, const Box& box, const void* packed);
  // A data set (of at least one dim) that shows others, of files in the same directory.
  void write_virtual(const std::string& name, const Shape& shape, DType dtype, const std::vector<VirtualPart>& parts);
  DatasetInfo info(const std::string& name) const;
  std::vector<std::string> dataset_names() const;  // sorted, full paths without the leading '/'
  // The elements of `box` or `slab`, packed row-major, in the data set's dtype.
  void read_box(const std::string& name, const Box& box, void* packed) const;
  void read_slab(const std::string& name, const Slab& slab, void* packed) const;

  void set_attribute(const std::string& name, int64_t value);
  void set_attribute(const std::string& name, const std::string& value);
  std::optional<int64_t> int_attribute(const std::string& name) const;
  std::optional<std::string> string_attribute(const std::string& name) const;

 private:
  void check_sink(const std::string& where) const;
  std::string path_;
  bool creates_ = false;
  std::unique_ptr<hdf5::Sink> sink_;  // of a new file
  int64_t file_ = -1;
};

}  // namespace dtorch::io
