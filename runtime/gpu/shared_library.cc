#include "runtime/gpu/shared_library.h"

#include <dlfcn.h>

namespace dtorch {

SharedLibrary::SharedLibrary(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) break;
    const char* const text = ::dlerror();
    error_ = text != nullptr ? text : name + ": not found";
  }
  if (handle_ != nullptr) error_.clear();
}

void* SharedLibrary::symbol(const char* name) const { return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr; }

}  // namespace dtorch
