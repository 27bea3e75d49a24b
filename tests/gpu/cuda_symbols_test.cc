// libdtorch_cuda.so as the linker sees it: shows one function of ours, lacks none, and programs don't need it or CUDA.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "runtime/gpu/cuda_library.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string text;
  std::array<char, 1 << 16> some;
  for (size_t size; (size = std::fread(some.data(), 1, some.size(), pipe.get())) > 0;) text.append(some.data(), size);
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Of a line such as "... (NEEDED)  Shared library: [libc.so.6]".
std::vector<std::string> dynamic_entries(const fs::path& file, const std::string& tag) {
  std::vector<std::string> found;
  for (const std::string& line : lines_of("readelf -dW '" + file.string() + "'")) {
    if (line.find("(" + tag + ")") == std::string::npos) continue;
    const size_t open = line.find('['), close = line.rfind(']');
    found.push_back(line.substr(open + 1, close - open - 1));
  }
  return found;
}

// Names with their kinds, as "T dtorch_cuda_entry"; versions of symbols are left out.
struct Symbol {
  char kind = ' ';
  std::string name;
};
std::vector<Symbol> symbols(const fs::path& file, const std::string& which) {
  std::vector<Symbol> found;
  for (const std::string& line : lines_of("nm -D --format=posix --" + which + "-only '" + file.string() + "'")) {
    std::istringstream words(line);
    Symbol symbol;
    words >> symbol.name >> symbol.kind;
    symbol.name = symbol.name.substr(0, symbol.name.find('@'));
    found.push_back(symbol);
  }
  return found;
}

class CudaSymbols : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_build().cuda_version == 0) GTEST_SKIP() << "this build has no CUDA backend";
    for (const std::string& folder : cuda_build().folders) {
      if (library_.empty() && fs::exists(fs::path(folder) / "libdtorch_cuda.so"))
        library_ = fs::path(folder) / "libdtorch_cuda.so";
    }
    ASSERT_FALSE(library_.empty()) << "libdtorch_cuda.so isn't built";
  }
  fs::path library_;
};

TEST_F(CudaSymbols, OfOursOneIsShown) {
  std::vector<std::string> shown;
  for (const Symbol& symbol : symbols(library_, "defined")) {
    // What LibTorch's and the standard library's headers define is weak, and theirs.
    if (symbol.kind == 'T' || symbol.kind == 'D' || symbol.kind == 'B' ||
        symbol.name.find("dtorch") != std::string::npos)
      shown.push_back(symbol.name);
  }
  EXPECT_EQ(shown, std::vector<std::string>{"dtorch_cuda_entry"});
}

TEST_F(CudaSymbols, NoneIsMissingInWhatItIsLinkedTo) {
  std::set<std::string> missing;
  for (const Symbol& symbol : symbols(library_, "undefined")) {
    if (symbol.kind == 'U') missing.insert(symbol.name);
  }
  EXPECT_GT(missing.size(), 50u);
  std::vector<std::string> folders;
  for (const std::string& path : dynamic_entries(library_, "RUNPATH")) {
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, ':');) folders.push_back(part);
  }
  for (const std::string& needed : dynamic_entries(library_, "NEEDED")) {
    fs::path file;
    for (const std::string& folder : folders) {
      if (file.empty() && fs::exists(fs::path(folder) / needed)) file = fs::path(folder) / needed;
    }
    if (file.empty()) {
      const std::vector<std::string> answer = lines_of("g++ -print-file-name=" + needed);
      ASSERT_FALSE(answer.empty());
      file = answer.front();
    }
    for (const Symbol& symbol : symbols(file, "defined")) missing.erase(symbol.name);
  }
  EXPECT_TRUE(missing.empty()) << missing.size() << ", " << *missing.begin() << " among them";
}

TEST_F(CudaSymbols, AllAreFoundWhenItIsLoaded) {
  void* const handle = ::dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string why = ::dlerror();
    EXPECT_EQ(why.find("undefined symbol"), std::string::npos) << why;
    GTEST_SKIP() << "LibTorch's CUDA libraries aren't all here: " << why;
  }
  const auto entry = reinterpret_cast<const CudaLibraryEntry* (*)()>(::dlsym(handle, "dtorch_cuda_entry"));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(unlike_builds(cuda_build(), *entry()), "");
  EXPECT_EQ(entry()->cuda_version / 1000, cuda_build().cuda_version / 1000);
}

TEST(Programs, AreFreeOfCuda) {
  const std::string folder = DTORCH_PROGRAMS;
  int looked_at = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (!file.is_regular_file() || ::access(file.path().c_str(), X_OK) != 0) continue;
    ++looked_at;
    for (const std::string& needed : dynamic_entries(file.path(), "NEEDED"))
      EXPECT_EQ(needed.find("cuda"), std::string::npos) << file.path() << " needs " << needed;
  }
  EXPECT_GT(looked_at, 0);
}

}  // namespace
}  // namespace dtorch::test
