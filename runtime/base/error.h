// The error types of DTorch and the internal check.
// UserError: a wrong call or wrong input, thrown before anything is sent; the program stays usable.
// RuntimeFault: something failed while running (kernel, memory, MPI, file, lost node); thrown at the next read.
// InternalError: a broken invariant of DTorch itself; never reachable from user input.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

#include "runtime/base/source_location.h"

namespace dtorch {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UserError : public Error {
 public:
  using Error::Error;
};
class ShapeError : public UserError {
 public:
  using UserError::UserError;
};
class DTypeError : public UserError {
 public:
  using UserError::UserError;
};
class MeshError : public UserError {
 public:
  using UserError::UserError;
};
class GraphError : public UserError {
 public:
  using UserError::UserError;
};
class KeyError : public UserError {
 public:
  using UserError::UserError;
};

class RuntimeFault : public Error {
 public:
  using Error::Error;
};

// A message, file or command line that doesn't decode. Never undefined behaviour.
class DecodeError : public RuntimeFault {
 public:
  using RuntimeFault::RuntimeFault;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

// A place in the user's program; a value that is cheap to copy. `file` points to static storage.
struct SourceLine {
  const char* file = "";
  uint32_t line = 0;
  static SourceLine from(const std::source_location& where) { return {where.file_name(), where.line()}; }
  std::string str() const { return std::string(file) + ":" + std::to_string(line); }
};
// The end of an error's text that names the place of a call.
inline std::string called_at(const SourceLine& where) { return "\n  called at " + where.str(); }
inline std::string called_at(const std::source_location& where) { return called_at(SourceLine::from(where)); }

[[noreturn]] void throw_internal_error(const char* condition, const std::string& detail, std::source_location where);

}  // namespace dtorch

// Always on, also in release. `detail` is any expression convertible to std::string, evaluated only on failure.
#define DTORCH_CHECK(condition, detail) \
  (static_cast<bool>(condition)         \
       ? void(0)                        \
       : ::dtorch::throw_internal_error(#condition, (detail), std::source_location::current()))
