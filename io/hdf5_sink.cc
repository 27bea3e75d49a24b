// A file driver of HDF5 that never fails towards it: HDF5 1.10 crashes when a write of its own fails. The first failure
// is kept in the Sink; from then on writes stay in memory (a few, since whoever writes looks at the Sink after every
// call), so that the library finds what it wrote until the file is closed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "io/hdf5_internal.h"

namespace dtorch::io::hdf5 {
namespace {

struct SinkFile {
  H5FD_t base;  // the library's, first
  int descriptor;
  Sink* sink;
  haddr_t end_of_space, end_of_file;
  std::map<haddr_t, std::vector<char>>* kept;  // written after a failure
};
static_assert(std::is_standard_layout_v<SinkFile>);

SinkFile* of(H5FD_t* file) { return reinterpret_cast<SinkFile*>(file); }
const SinkFile* of(const H5FD_t* file) { return reinterpret_cast<const SinkFile*>(file); }

H5FD_t* sink_open(const char* name, unsigned, hid_t access, haddr_t) {
  Sink* const* sink = static_cast<Sink* const*>(H5Pget_driver_info(access));
  if (sink == nullptr) return nullptr;
  const int descriptor = ::open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    (*sink)->failure = std::strerror(errno);
    return nullptr;
  }
  auto* file = static_cast<SinkFile*>(std::calloc(1, sizeof(SinkFile)));
  if (file == nullptr) {
    ::close(descriptor);
    return nullptr;
  }
  file->descriptor = descriptor;
  file->sink = *sink;
  file->kept = new std::map<haddr_t, std::vector<char>>;
  return &file->base;
}

herr_t sink_close(H5FD_t* base) {
  SinkFile* file = of(base);
  if (::close(file->descriptor) != 0 && file->sink->failure.empty()) file->sink->failure = std::strerror(errno);
  delete file->kept;
  std::free(file);
  return 0;
}

herr_t sink_query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t sink_get_eoa(const H5FD_t* file, H5FD_mem_t) { return of(file)->end_of_space; }
herr_t sink_set_eoa(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  of(file)->end_of_space = address;
  return 0;
}
haddr_t sink_get_eof(const H5FD_t* file, H5FD_mem_t) { return of(file)->end_of_file; }

herr_t sink_read(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t size, void* buffer) {
  const SinkFile* file = of(base);
  auto* to = static_cast<char*>(buffer);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::pread(file->descriptor, to + done, size - done, static_cast<off_t>(address + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  std::memset(to + done, 0, size - done);  // past the end there are zeros
  for (const auto& [at, bytes] : *file->kept) {
    const haddr_t from = std::max(at, address), until = std::min(at + bytes.size(), address + size);
    if (from < until) std::memcpy(to + (from - address), bytes.data() + (from - at), until - from);
  }
  return 0;
}

herr_t sink_write(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t size, const void* buffer) {
  SinkFile* file = of(base);
  const auto* from = static_cast<const char*>(buffer);
  file->end_of_file = std::max(file->end_of_file, address + size);
  size_t done = 0;
  while (file->sink->failure.empty() && done < size) {
    const ssize_t wrote = ::pwrite(file->descriptor, from + done, size - done, static_cast<off_t>(address + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) file->sink->failure = std::strerror(errno);
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  if (!file->sink->failure.empty()) (*file->kept)[address].assign(from, from + size);
  return 0;
}

herr_t sink_truncate(H5FD_t* base, hid_t, hbool_t) {
  SinkFile* file = of(base);
  if (file->sink->failure.empty() && ::ftruncate(file->descriptor, static_cast<off_t>(file->end_of_space)) != 0 &&
      errno != EINVAL) {  // not a regular file
    file->sink->failure = std::strerror(errno);
  }
  file->end_of_file = file->end_of_space;
  return 0;
}

hid_t driver() {
  static const H5FD_class_t description = [] {
    H5FD_class_t made{};
    made.name = "dtorch_sink";
    made.maxaddr = (haddr_t{1} << 62) - 1;
    made.fc_degree = H5F_CLOSE_WEAK;
    made.fapl_size = sizeof(Sink*);
    made.open = sink_open;
    made.close = sink_close;
    made.query = sink_query;
    made.get_eoa = sink_get_eoa;
    made.set_eoa = sink_set_eoa;
    made.get_eof = sink_get_eof;
    made.read = sink_read;
    made.write = sink_write;
    made.truncate = sink_truncate;
    constexpr H5FD_mem_t kOneList[H5FD_MEM_NTYPES] = H5FD_FLMAP_SINGLE;
    std::copy(std::begin(kOneList), std::end(kOneList), made.fl_map);
    return made;
  }();
  static const hid_t id = H5FDregister(&description);
  return id;
}

}  // namespace

void set_sink(hid_t access, Sink& sink, const std::string& where) {
  Sink* address = &sink;
  need(H5Pset_driver(access, driver(), &address), where);
}

}  // namespace dtorch::io::hdf5
