#include "io/hdf5_file.h"

#include <hdf5.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "io/file.h"
#include "runtime/base/error.h"

namespace dtorch::io {
namespace {

std::mutex& hdf5_lock() {
  static std::mutex lock;
  return lock;
}

// The innermost message of HDF5's error stack.
std::string hdf5_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        auto* text = static_cast<std::string*>(out);
        if (text->empty() && error->desc) *text = error->desc;
        return 0;
      },
      &reason);
  return reason.empty() ? "unknown reason" : reason;
}

// Keeps HDF5 from printing its stack.
void quiet() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id_ < 0) throw RuntimeFault(what + ": " + hdf5_reason());
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void need(herr_t code, const std::string& what) {
  if (code < 0) throw RuntimeFault(what + ": " + hdf5_reason());
}

hid_t native_type(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return H5T_NATIVE_UINT8;
    case DType::kUInt8:
      return H5T_NATIVE_UINT8;
    case DType::kInt8:
      return H5T_NATIVE_INT8;
    case DType::kInt16:
      return H5T_NATIVE_INT16;
    case DType::kInt32:
      return H5T_NATIVE_INT32;
    case DType::kInt64:
      return H5T_NATIVE_INT64;
    case DType::kFloat16:
      return H5T_NATIVE_UINT16;
    case DType::kBFloat16:
      return H5T_NATIVE_UINT16;
    case DType::kFloat32:
      return H5T_NATIVE_FLOAT;
    case DType::kFloat64:
      break;
  }
  return H5T_NATIVE_DOUBLE;
}

constexpr const char* kDTypeAttribute = "dtorch_dtype";
constexpr hsize_t kChunkElements = 1 << 18;

void write_string(hid_t object, const std::string& name, const std::string& value, const std::string& where) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, where);
  need(H5Tset_size(type, std::max<size_t>(value.size(), 1)), where);
  Handle space(H5Screate(H5S_SCALAR), H5Sclose, where);
  Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, where);
  need(H5Awrite(attribute, type, value.empty() ? "" : value.data()), where);
}

std::optional<std::string> read_string(hid_t object, const std::string& name, const std::string& where) {
  if (H5Aexists(object, name.c_str()) <= 0) return std::nullopt;
  Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, where);
  Handle type(H5Aget_type(attribute), H5Tclose, where);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0) {
    throw RuntimeFault(where + ": attribute '" + name + "' isn't a string of fixed length");
  }
  std::string value(std::min<size_t>(H5Tget_size(type), 1 << 20), '\0');
  need(H5Aread(attribute, type, value.data()), where);
  value.resize(std::min(value.size(), value.find('\0')));
  return value;
}

DType dtype_of_dataset(hid_t dataset, const std::string& where) {
  if (auto name = read_string(dataset, kDTypeAttribute, where)) return dtype_from_name(*name);
  Handle type(H5Dget_type(dataset), H5Tclose, where);
  const size_t size = H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT && size == 4) return kFloat32;
  if (kind == H5T_FLOAT && size == 8) return kFloat64;
  if (kind == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
    if (size == 1) return is_signed ? kInt8 : kUInt8;
    if (size == 2 && is_signed) return kInt16;
    if (size == 4 && is_signed) return kInt32;
    if (size == 8 && is_signed) return kInt64;
  }
  throw RuntimeFault(where + ": its element type isn't one that DTorch has");
}

}  // namespace

Hdf5File::Hdf5File(const std::filesystem::path& path, Mode mode)
    : path_(path.string()), creates_(mode == Mode::kCreate) {
  std::lock_guard lock(hdf5_lock());
  quiet();
  if (creates_) {
    // In memory: HDF5 1.10 crashes when a write of its own fails, so close() writes the bytes.
    constexpr size_t kGrowth = 1 << 20;
    const std::string where = "cannot create HDF5 file '" + path_ + "'";
    Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, where);
    need(H5Pset_fapl_core(access, kGrowth, /*backing_store=*/0), where);
    file_ = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    need(file_ < 0 ? -1 : 0, where);
  } else {
    file_ = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    need(file_ < 0 ? -1 : 0, "cannot open HDF5 file '" + path_ + "'");
  }
}

Hdf5File::~Hdf5File() {
  std::lock_guard lock(hdf5_lock());
  if (file_ >= 0) H5Fclose(file_);
}

void Hdf5File::close() {
  std::vector<std::byte> image;
  {
    std::lock_guard lock(hdf5_lock());
    quiet();
    const std::string where = "cannot write '" + path_ + "'";
    if (creates_) {
      need(H5Fflush(file_, H5F_SCOPE_GLOBAL), where);
      const ssize_t size = H5Fget_file_image(file_, nullptr, 0);
      need(size < 0 ? -1 : 0, where);
      image.resize(static_cast<size_t>(size));
      need(H5Fget_file_image(file_, image.data(), image.size()) < 0 ? -1 : 0, where);
    }
    need(H5Fclose(std::exchange(file_, -1)), where);
  }
  if (creates_) write_file(path_, image.data(), image.size());
}

void Hdf5File::write(const std::string& name, const HostTensor& tensor, bool contiguous) {
  std::lock_guard lock(hdf5_lock());
  quiet();
  const std::string where = "cannot write data set '" + name + "' of '" + path_ + "'";
  std::vector<hsize_t> sizes(tensor.shape().begin(), tensor.shape().end());
  Handle space(
      sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose, where);
  Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, where);
  need(H5Pset_create_intermediate_group(links, 1), where);
  Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, where);
  if (contiguous) {
    need(H5Pset_layout(creation, H5D_CONTIGUOUS), where);
    need(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), where);
  } else if (!sizes.empty() && tensor.num_elements() > 0) {
    // Whole rows where they fit.
    std::vector<hsize_t> chunk = sizes;
    hsize_t elements = static_cast<hsize_t>(tensor.num_elements());
    for (size_t d = 0; d < chunk.size() && elements > kChunkElements; ++d) {
      const hsize_t row = elements / chunk[d];
      chunk[d] = std::clamp<hsize_t>(kChunkElements / std::max<hsize_t>(row, 1), 1, chunk[d]);
      elements = row * chunk[d];
    }
    need(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()), where);
    need(H5Pset_fletcher32(creation), where);
  }
  const hid_t type = native_type(tensor.dtype());
  Handle dataset(H5Dcreate2(file_, name.c_str(), type, space, links, creation, H5P_DEFAULT), H5Dclose, where);
  need(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.bytes()), where);
  if (tensor.dtype() == kBool || tensor.dtype() == kFloat16 || tensor.dtype() == kBFloat16) {
    write_string(dataset, kDTypeAttribute, name_of(tensor.dtype()), where);
  }
}

DatasetInfo Hdf5File::info(const std::string& name) const {
  std::lock_guard lock(hdf5_lock());
  quiet();
  const std::string where = "data set '" + name + "' of '" + path_ + "'";
  Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, where);
  Handle space(H5Dget_space(dataset), H5Sclose, where);
  const int ndim = H5Sget_simple_extent_ndims(space);
  if (ndim < 0 || ndim > kMaxDims) throw RuntimeFault(where + " has " + std::to_string(ndim) + " dims");
  std::vector<hsize_t> sizes(static_cast<size_t>(ndim));
  if (ndim > 0) need(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), where);
  DatasetInfo info;
  for (hsize_t size : sizes) info.shape.push_back(static_cast<int64_t>(size));
  info.dtype = dtype_of_dataset(dataset, where);
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset != HADDR_UNDEF) info.file_offset = static_cast<int64_t>(offset);
  return info;
}

std::vector<std::string> Hdf5File::dataset_names() const {
  std::lock_guard lock(hdf5_lock());
  quiet();
  std::vector<std::string> names;
  need(H5Ovisit2(
           file_, H5_INDEX_NAME, H5_ITER_INC,
           [](hid_t, const char* name, const H5O_info_t* info, void* out) -> herr_t {
             if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<std::string>*>(out)->emplace_back(name);
             return 0;
           },
           &names, H5O_INFO_BASIC),
       "cannot list '" + path_ + "'");
  std::sort(names.begin(), names.end());
  return names;
}

void Hdf5File::read_box(const std::string& name, const Box& box, void* packed) const {
  std::lock_guard lock(hdf5_lock());
  quiet();
  const std::string where = "cannot read data set '" + name + "' of '" + path_ + "'";
  if (box.empty()) return;
  Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, where);
  const hid_t type = native_type(dtype_of_dataset(dataset, where));
  if (box.ndim() == 0) {
    need(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, packed), where);
    return;
  }
  Handle space(H5Dget_space(dataset), H5Sclose, where);
  std::vector<hsize_t> offset(box.offset.begin(), box.offset.end()), size(box.size.begin(), box.size.end());
  if (H5Sget_simple_extent_ndims(space) != static_cast<int>(size.size()))
    throw RuntimeFault(where + ": it has another number of dims");
  need(H5Sselect_hyperslab(space, H5S_SELECT_SET, offset.data(), nullptr, size.data(), nullptr), where);
  if (H5Sselect_valid(space) <= 0) throw RuntimeFault(where + ": box " + box.str() + " is outside");
  Handle memory(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose, where);
  need(H5Dread(dataset, type, memory, space, H5P_DEFAULT, packed), where);
}

void Hdf5File::set_attribute(const std::string& name, int64_t value) {
  std::lock_guard lock(hdf5_lock());
  quiet();
  const std::string where = "cannot write attribute '" + name + "' of '" + path_ + "'";
  Handle space(H5Screate(H5S_SCALAR), H5Sclose, where);
  Handle attribute(H5Acreate2(file_, name.c_str(), H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, where);
  need(H5Awrite(attribute, H5T_NATIVE_INT64, &value), where);
}

void Hdf5File::set_attribute(const std::string& name, const std::string& value) {
  std::lock_guard lock(hdf5_lock());
  quiet();
  write_string(file_, name, value, "cannot write attribute '" + name + "' of '" + path_ + "'");
}

std::optional<int64_t> Hdf5File::int_attribute(const std::string& name) const {
  std::lock_guard lock(hdf5_lock());
  quiet();
  if (H5Aexists(file_, name.c_str()) <= 0) return std::nullopt;
  const std::string where = "cannot read attribute '" + name + "' of '" + path_ + "'";
  Handle attribute(H5Aopen(file_, name.c_str(), H5P_DEFAULT), H5Aclose, where);
  int64_t value = 0;
  need(H5Aread(attribute, H5T_NATIVE_INT64, &value), where);
  return value;
}

std::optional<std::string> Hdf5File::string_attribute(const std::string& name) const {
  std::lock_guard lock(hdf5_lock());
  quiet();
  return read_string(file_, name, "cannot read attribute '" + name + "' of '" + path_ + "'");
}

}  // namespace dtorch::io
