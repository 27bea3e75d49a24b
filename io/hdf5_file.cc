#include "io/hdf5_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <utility>

#include "io/file.h"
#include "io/hdf5_internal.h"
#include "runtime/base/error.h"

namespace dtorch::io {
using hdf5::dtype_of_dataset;
using hdf5::Handle;
using hdf5::native_type;
using hdf5::need;
using hdf5::quiet;
using hdf5::read_string;
using hdf5::write_string;

namespace {

std::vector<hsize_t> list(const Shape& shape) { return {shape.begin(), shape.end()}; }

void select(hid_t space, const Slab& slab, const std::string& where) {
  const auto start = list(slab.start), stride = list(slab.stride), count = list(slab.count), block = list(slab.block);
  need(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), stride.data(), count.data(), block.data()), where);
}

// Whole rows where they fit.
std::vector<hsize_t> chunk_of(const std::vector<hsize_t>& sizes) {
  std::vector<hsize_t> chunk = sizes;
  hsize_t elements = 1;
  for (hsize_t size : sizes) elements *= size;
  constexpr auto kMost = static_cast<hsize_t>(kChunkElements);
  for (size_t d = 0; d < chunk.size() && elements > kMost; ++d) {
    const hsize_t row = elements / chunk[d];
    chunk[d] = std::clamp<hsize_t>(kMost / std::max<hsize_t>(row, 1), 1, chunk[d]);
    elements = row * chunk[d];
  }
  return chunk;
}

// What is commonest said in a user's words; HDF5 has its own for the rest.
void require_hdf5_file(const std::string& path) {
  const std::string before = "cannot open '" + path + "': ";
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) throw RuntimeFault(before + "it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeFault(before + std::strerror(errno));
  if (H5Fis_hdf5(path.c_str()) == 0)
    throw RuntimeFault(before + "it is no HDF5 file (`dtorch_app prepare` makes token files)");
}

}  // namespace

Hdf5File::Hdf5File(const std::filesystem::path& path, Mode mode)
    : path_(path.string()), creates_(mode == Mode::kCreate), sink_(std::make_unique<hdf5::Sink>()) {
  std::lock_guard lock(hdf5::lock());
  quiet();
  if (creates_) {
    const std::string where = "cannot create HDF5 file '" + path_ + "'";
    Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, where);
    hdf5::set_sink(access, *sink_, where);
    file_ = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    if (file_ < 0 && !sink_->failure.empty()) throw RuntimeFault(where + ": " + sink_->failure);
    need(file_ < 0 ? -1 : 0, where);
  } else {
    require_hdf5_file(path_);
    file_ = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    need(file_ < 0 ? -1 : 0, "cannot open HDF5 file '" + path_ + "'");
  }
}

Hdf5File::~Hdf5File() {
  std::lock_guard lock(hdf5::lock());
  if (file_ >= 0) H5Fclose(file_);
}

void Hdf5File::check_sink(const std::string& where) const {
  if (!sink_->failure.empty()) throw RuntimeFault(where + ": " + sink_->failure);
}

void Hdf5File::close(bool sync) {
  {
    std::lock_guard lock(hdf5::lock());
    quiet();
    const std::string where = "cannot write '" + path_ + "'";
    need(H5Fclose(std::exchange(file_, -1)), where);
    check_sink(where);
  }
  if (creates_ && sync) sync_path(path_);
}

void Hdf5File::create(const std::string& name, const Shape& shape, DType dtype, bool contiguous) {
  std::lock_guard lock(hdf5::lock());
  quiet();
  const std::string where = "cannot create data set '" + name + "' of '" + path_ + "'";
  std::vector<hsize_t> sizes(shape.begin(), shape.end());
  Handle space(
      sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose, where);
  Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, where);
  need(H5Pset_create_intermediate_group(links, 1), where);
  Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, where);
  if (contiguous) {
    need(H5Pset_layout(creation, H5D_CONTIGUOUS), where);
    need(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), where);
    need(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), where);
  } else if (!sizes.empty() && shape.num_elements() > 0) {
    const std::vector<hsize_t> chunk = chunk_of(sizes);
    need(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()), where);
    need(H5Pset_fletcher32(creation), where);
  }
  Handle dataset(H5Dcreate2(file_, name.c_str(), native_type(dtype), space, links, creation, H5P_DEFAULT), H5Dclose,
                 where);
  hdf5::write_dtype(dataset, dtype, where);
  check_sink(where);
}

void Hdf5File::write_box(const std::string& name, const Box& box, const void* packed) {
  std::lock_guard lock(hdf5::lock());
  quiet();
  const std::string where = "cannot write data set '" + name + "' of '" + path_ + "'";
  if (box.empty()) return;
  Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, where);
  const hid_t type = native_type(dtype_of_dataset(dataset, where));
  if (box.ndim() == 0) {
    need(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, packed), where);
  } else {
    Handle space(H5Dget_space(dataset), H5Sclose, where);
    select(space, slab_of_box(box), where);
    const auto size = list(box.size);
    Handle memory(H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose, where);
    need(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, packed), where);
  }
  check_sink(where);
}

void Hdf5File::write(const std::string& name, const HostTensor& tensor, bool contiguous) {
  create(name, tensor.shape(), tensor.dtype(), contiguous);
  write_box(name, whole(tensor.shape()), tensor.bytes());
}

void Hdf5File::write_virtual(const std::string& name, const Shape& shape, DType dtype,
                             const std::vector<VirtualPart>& parts) {
  std::lock_guard lock(hdf5::lock());
  quiet();
  const std::string where = "cannot write virtual data set '" + name + "' of '" + path_ + "'";
  std::vector<hsize_t> sizes(shape.begin(), shape.end());
  Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose, where);
  Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose, where);
  need(H5Pset_create_intermediate_group(links, 1), where);
  Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, where);
  for (const VirtualPart& part : parts) {
    select(space, part.where, where);
    const auto there = list(part.shape);
    Handle source(H5Screate_simple(static_cast<int>(there.size()), there.data(), nullptr), H5Sclose, where);
    if (part.box) select(source, slab_of_box(*part.box), where);
    need(H5Pset_virtual(creation, space, part.file.c_str(), part.dataset.c_str(), source), where);
  }
  need(H5Sselect_all(space), where);
  Handle dataset(H5Dcreate2(file_, name.c_str(), native_type(dtype), space, links, creation, H5P_DEFAULT), H5Dclose,
                 where);
  hdf5::write_dtype(dataset, dtype, where);
  check_sink(where);
}

DatasetInfo Hdf5File::info(const std::string& name) const {
  std::lock_guard lock(hdf5::lock());
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
  std::lock_guard lock(hdf5::lock());
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

// HDF5 reads a virtual data set whose file is gone, or can't be opened, as zeros; here that is an error.
static void need_sources(hid_t dataset, const std::string& path, const std::string& where) {
  Handle creation(H5Dget_create_plist(dataset), H5Pclose, where);
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return;
  size_t count = 0;
  need(H5Pget_virtual_count(creation, &count), where);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (size_t i = 0; i < count; ++i) {
    const ssize_t length = H5Pget_virtual_filename(creation, i, nullptr, 0);
    if (length < 0) throw RuntimeFault(where + ": it doesn't name its parts");
    std::string name(static_cast<size_t>(length) + 1, '\0');
    H5Pget_virtual_filename(creation, i, name.data(), name.size());
    name.resize(static_cast<size_t>(length));
    if (!std::filesystem::exists(folder / name)) throw RuntimeFault(where + ": its part '" + name + "' is gone");
    Handle(H5Fopen((folder / name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose,
           where + ": its part '" + name + "' can't be opened");
  }
}

void Hdf5File::read_box(const std::string& name, const Box& box, void* packed) const {
  read_slab(name, slab_of_box(box), packed);
}

void Hdf5File::read_slab(const std::string& name, const Slab& slab, void* packed) const {
  std::lock_guard lock(hdf5::lock());
  quiet();
  const std::string where = "cannot read data set '" + name + "' of '" + path_ + "'";
  const int64_t elements = slab.num_elements();
  if (elements == 0) return;
  Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose, where);
  need_sources(dataset, path_, where);
  const hid_t type = native_type(dtype_of_dataset(dataset, where));
  if (slab.start.ndim() == 0) {
    need(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, packed), where);
    return;
  }
  Handle space(H5Dget_space(dataset), H5Sclose, where);
  if (H5Sget_simple_extent_ndims(space) != static_cast<int>(slab.start.ndim()))
    throw RuntimeFault(where + ": it has another number of dims");
  select(space, slab, where);
  if (H5Sselect_valid(space) <= 0) {
    throw RuntimeFault(where + ": " + slab.count.str() + " blocks of " + slab.block.str() + " from " +
                       slab.start.str() + " on are outside");
  }
  const auto count = static_cast<hsize_t>(elements);
  Handle memory(H5Screate_simple(1, &count, nullptr), H5Sclose, where);
  need(H5Dread(dataset, type, memory, space, H5P_DEFAULT, packed), where);
}

void Hdf5File::set_attribute(const std::string& name, int64_t value) {
  std::lock_guard lock(hdf5::lock());
  quiet();
  const std::string where = "cannot write attribute '" + name + "' of '" + path_ + "'";
  Handle space(H5Screate(H5S_SCALAR), H5Sclose, where);
  Handle attribute(H5Acreate2(file_, name.c_str(), H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, where);
  need(H5Awrite(attribute, H5T_NATIVE_INT64, &value), where);
}

void Hdf5File::set_attribute(const std::string& name, const std::string& value) {
  std::lock_guard lock(hdf5::lock());
  quiet();
  write_string(file_, name, value, "cannot write attribute '" + name + "' of '" + path_ + "'");
}

std::optional<int64_t> Hdf5File::int_attribute(const std::string& name) const {
  std::lock_guard lock(hdf5::lock());
  quiet();
  if (H5Aexists(file_, name.c_str()) <= 0) return std::nullopt;
  const std::string where = "cannot read attribute '" + name + "' of '" + path_ + "'";
  Handle attribute(H5Aopen(file_, name.c_str(), H5P_DEFAULT), H5Aclose, where);
  int64_t value = 0;
  need(H5Aread(attribute, H5T_NATIVE_INT64, &value), where);
  return value;
}

std::optional<std::string> Hdf5File::string_attribute(const std::string& name) const {
  std::lock_guard lock(hdf5::lock());
  quiet();
  return read_string(file_, name, "cannot read attribute '" + name + "' of '" + path_ + "'");
}

}  // namespace dtorch::io
