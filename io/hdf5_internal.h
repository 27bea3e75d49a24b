// What the files of the HDF5 door share: the one lock, handles that close themselves, failures with HDF5's own reason.
#pragma once
#include <hdf5.h>

#include <mutex>
#include <optional>
#include <string>

#include "mesh/dtype.h"
#include "runtime/base/error.h"

namespace dtorch::io::hdf5 {

// All calls of a process take it.
std::mutex& lock();
// Keeps HDF5 from printing its stack.
void quiet();
// The innermost message of HDF5's error stack.
std::string reason();
// Throws RuntimeFault "what: reason" when a call failed.
void need(herr_t code, const std::string& what);

class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t), const std::string& what) : id_(id), close_(close) {
    if (id_ < 0) throw RuntimeFault(what + ": " + reason());
  }
  ~Handle() { close_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// Of the elements in memory and in files.
hid_t native_type(DType dtype);
// Half types and bool are stored as their bits; the attribute dtorch_dtype names them.
void write_dtype(hid_t dataset, DType dtype, const std::string& where);
DType dtype_of_dataset(hid_t dataset, const std::string& where);
void write_string(hid_t object, const std::string& name, const std::string& value, const std::string& where);
std::optional<std::string> read_string(hid_t object, const std::string& name, const std::string& where);

// Where the bytes of a file that is written go; what failed there first.
struct Sink {
  std::string failure;  // empty: none
};
// Properties of a file access whose writes go through `sink`, which must live until the file is closed.
void set_sink(hid_t access, Sink& sink, const std::string& where);

}  // namespace dtorch::io::hdf5
