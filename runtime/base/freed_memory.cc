#include "runtime/base/freed_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <string_view>

namespace dtorch {
namespace {

[[maybe_unused]] bool user_has_chosen() {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view setting = *variable;
    if (setting.starts_with("MALLOC_") || setting.starts_with("LD_PRELOAD=")) return true;
    if (setting.starts_with("GLIBC_TUNABLES=") && setting.find("glibc.malloc.") != setting.npos) return true;
  }
  return false;
}

}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  if (user_has_chosen()) return;
  // One heap for all threads: those that glibc makes for threads hold no large blocks, and hand them to the kernel.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

}  // namespace dtorch
