#include "runtime/worker/device_backend.h"

#include <new>

namespace dtorch {

std::string standard_error_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that isn't a std::exception";
  }
}

}  // namespace dtorch
