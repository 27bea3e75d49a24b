#include "runtime/base/error.h"

namespace dtorch {

void throw_internal_error(const char* condition, const std::string& detail, std::source_location where) {
  throw InternalError("internal error: " + std::string(condition) + " is false at " + where.file_name() + ":" +
                      std::to_string(where.line()) + (detail.empty() ? "" : ": " + detail));
}

}  // namespace dtorch
