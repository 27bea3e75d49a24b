#include "tests/kernel_source/host_kernels.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "runtime/kernel_source/prelude.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHostPrelude = R"(
#include <cmath>
#include <cstring>
#include <utility>
#define DT_HOST
#define DT_INLINE inline
#define DT_KERNEL extern "C" void
extern "C" { long long dt_thread, dt_threads, dt_row; }
#define DT_THREAD dt_thread
#define DT_THREADS dt_threads
#define DT_ROW dt_row
static inline float bits_to_float(unsigned bits) { float r; std::memcpy(&r, &bits, 4); return r; }
static inline unsigned float_to_bits(float value) { unsigned r; std::memcpy(&r, &value, 4); return r; }
static inline float f16_to_float(unsigned short bits) { _Float16 r; std::memcpy(&r, &bits, 2); return (float)r; }
static inline unsigned short float_to_f16(float value) {
  const _Float16 half = (_Float16)value;
  unsigned short r;
  std::memcpy(&r, &half, 2);
  return r;
}
static inline unsigned long long mul_high(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <class... A, std::size_t... I>
void dt_call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}
template <class... A> void dt_call(void (*kernel)(A...), void** arguments) {
  dt_call(kernel, arguments, std::index_sequence_for<A...>());
}
)";

std::string read_all(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

HostKernels::HostKernels(const std::string& text, const std::vector<std::string>& names) {
  std::string pattern = (fs::temp_directory_path() / "dtorch_host_kernels.XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder for " + pattern);
  const fs::path folder = pattern;
  std::ofstream source(folder / "kernels.cc");
  source << kHostPrelude << kernel_source::prelude() << text;
  for (const std::string& name : names)
    source << "extern \"C\" void launch_" << name << "(void** arguments) { dt_call(" << name << ", arguments); }\n";
  source.close();
  const std::string command = std::string(DTORCH_HOST_COMPILER) +
                              " -std=c++17 -O0 -w -fwrapv -ffp-contract=off -fno-strict-aliasing -shared -fPIC -o " +
                              (folder / "kernels.so").string() + " " + (folder / "kernels.cc").string() + " 2> " +
                              (folder / "log").string();
  const int status = std::system(command.c_str());
  const std::string log = read_all(folder / "log");
  if (status == 0) handle_ = ::dlopen((folder / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const refused = status == 0 && handle_ == nullptr ? ::dlerror() : nullptr;
  fs::remove_all(folder);
  if (handle_ == nullptr) throw std::runtime_error(command + "\n" + log.substr(0, 4000) + (refused ? refused : ""));
}

HostKernels::~HostKernels() { ::dlclose(handle_); }

void* HostKernels::symbol(const std::string& name) const {
  void* const found = ::dlsym(handle_, name.c_str());
  if (found == nullptr) throw std::runtime_error("no symbol " + name);
  return found;
}

void HostKernels::run(const std::string& name, const std::vector<void*>& arguments, int64_t threads,
                      int64_t rows) const {
  const auto launch = reinterpret_cast<void (*)(void**)>(symbol("launch_" + name));
  auto& thread = *static_cast<long long*>(symbol("dt_thread"));
  auto& row = *static_cast<long long*>(symbol("dt_row"));
  *static_cast<long long*>(symbol("dt_threads")) = threads;
  std::vector<void*> words = arguments;
  for (row = 0; row < rows; ++row) {
    for (thread = 0; thread < threads; ++thread) launch(words.data());
  }
}

}  // namespace dtorch::test
