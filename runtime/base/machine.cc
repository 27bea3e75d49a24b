#include "runtime/base/machine.h"

#include <fstream>
#include <functional>
#include <string>

namespace dtorch {

uint64_t machine_number() {
  static const uint64_t number = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    return std::getline(file, id) ? uint64_t{std::hash<std::string>()(id)} : 0;
  }();
  return number;
}

}  // namespace dtorch
