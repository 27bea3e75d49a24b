#include "runtime/worker/device_backend.h"

#include <new>

namespace dtorch {

std::shared_ptr<DeviceQueue> DeviceBackend::open_queue(size_t, size_t, MemoryCounter*) { return nullptr; }

bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OutOfMemory&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

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
