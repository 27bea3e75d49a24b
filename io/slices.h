// Tensors read from files by the devices that hold them: a run of bytes (safetensors) or an HDF5 data set. Each device
// reads only its part.
#pragma once
#include <filesystem>
#include <string>

#include "runtime/client/tensor.h"

namespace dtorch::io {

// A row-major tensor of `shape` and `stored` at a byte offset of a file, converted to `dtype`, laid out as `layout`.
Tensor file_slice(const std::filesystem::path& path, int64_t offset, const Shape& shape, DType stored, DType dtype,
                  const Layout& layout, Where where = Where::current());
// A data set, seen as `shape` (the same elements in the same order; only neighbouring dims may be merged in the file),
// in its own dtype.
Tensor hdf5_slice(const std::filesystem::path& path, const std::string& dataset, const Shape& file_shape,
                  const Shape& shape, DType dtype, const Layout& layout, Where where = Where::current());

}  // namespace dtorch::io
