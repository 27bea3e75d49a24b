// Compiled kernels are kept in memory and on disk; a file that was damaged is made anew.
#include "runtime/kernel_source/kernel_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;
using kernel_source::KernelCache;

class KernelCacheTest : public testing::Test {
 protected:
  KernelCacheTest() : folder_(fs::temp_directory_path() / ("dtorch_cache." + std::to_string(::getpid()))) {}
  ~KernelCacheTest() override { fs::remove_all(folder_); }
  std::string get(KernelCache& cache, const std::string& key) {
    return *cache.find_or_compile(key, [&] { return "code of " + key; });
  }
  std::vector<fs::path> files() const { return {fs::directory_iterator(folder_), fs::directory_iterator()}; }
  const fs::path folder_;
};

TEST_F(KernelCacheTest, CompilesOnceAProcessAndOnceAFolder) {
  KernelCache first(folder_), second(folder_);
  EXPECT_EQ(get(first, "a"), "code of a");
  EXPECT_EQ(get(first, "a"), "code of a");
  EXPECT_EQ(get(second, "a"), "code of a");
  EXPECT_EQ(get(second, "b"), "code of b");
  EXPECT_EQ(first.counts().compiled, 1);
  EXPECT_EQ(first.counts().from_memory, 1);
  EXPECT_EQ(second.counts().from_folder, 1);
  EXPECT_EQ(second.counts().compiled, 1);
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(KernelCacheTest, DamagedFilesAreMadeAnew) {
  KernelCache writer(folder_);
  const std::string code = get(writer, "a");
  const fs::path file = files().at(0);
  std::ostringstream whole;
  whole << std::ifstream(file, std::ios::binary).rdbuf();
  const std::string good = whole.str();
  std::string flipped = good;
  flipped.back() ^= 1;
  for (const std::string& bad : {good.substr(0, good.size() - 1), flipped, std::string(),
                                 std::string("dtorch-kernel 1\n"), "dtorch-kernel 2" + good.substr(15)}) {
    std::ofstream(file, std::ios::binary) << bad;
    KernelCache reader(folder_);
    EXPECT_EQ(get(reader, "a"), code);
    EXPECT_EQ(reader.counts().compiled, 1);
    EXPECT_EQ(reader.counts().folder_failures, 1);
    KernelCache again(folder_);
    EXPECT_EQ(get(again, "a"), code);
    EXPECT_EQ(again.counts().from_folder, 1);
  }
}

TEST_F(KernelCacheTest, FileOfAnotherKeyIsntTaken) {
  KernelCache writer(folder_);
  get(writer, "a");
  const fs::path of_a = files().at(0);
  get(writer, "b");
  for (const fs::path& file : files()) {
    if (file != of_a) fs::copy_file(of_a, file, fs::copy_options::overwrite_existing);
  }
  KernelCache reader(folder_);
  EXPECT_EQ(get(reader, "b"), "code of b");
}

TEST_F(KernelCacheTest, FolderThatCantBeWrittenCostsOnlyTheCompilation) {
  std::ofstream(folder_) << "a file where the folder should be";
  KernelCache cache(folder_);
  EXPECT_EQ(get(cache, "a"), "code of a");
  EXPECT_EQ(cache.counts().folder_failures, 1);
}

TEST_F(KernelCacheTest, WhatFailsIsntKept) {
  KernelCache cache(folder_);
  EXPECT_THROW(cache.find_or_compile("a", []() -> std::string { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(get(cache, "a"), "code of a");
}

TEST_F(KernelCacheTest, ThreadsMayShareIt) {
  KernelCache cache(folder_);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const std::string key = "k" + std::to_string(i % 10);
        if (*cache.find_or_compile(key, [&] { return "code of " + key; }) != "code of " + key) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files().size(), 10u);
}

TEST(KernelCache, FolderIsTheUsersChoice) {
  ::setenv("DTORCH_KERNEL_CACHE", "/somewhere", 1);
  EXPECT_EQ(KernelCache::default_folder(), "/somewhere");
  ::setenv("DTORCH_KERNEL_CACHE", "off", 1);
  EXPECT_TRUE(KernelCache::default_folder().empty());
  ::unsetenv("DTORCH_KERNEL_CACHE");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(KernelCache::default_folder(), "/cache/dtorch/kernels");
  ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace dtorch::test
