// Return codes of MPI as exceptions. Inside runtime/comm only.
#pragma once
#include <mpi.h>

#include <string>

#include "runtime/base/error.h"

namespace dtorch {

inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return std::string(text, static_cast<size_t>(length));
}

// What MPI itself says; it needn't say so on all ranks.
class MpiError : public RuntimeFault {
 public:
  using RuntimeFault::RuntimeFault;
};

inline void check_mpi(int code, const char* what) {
  if (code != MPI_SUCCESS)
    throw MpiError(std::string(what, std::string_view(what).find('(')) + ": " + mpi_error_text(code));
}

}  // namespace dtorch

// Throws MpiError "MPI_Isend: what MPI says".
#define DTORCH_MPI(call) ::dtorch::check_mpi((call), #call)
