// Children of a supervisor, and what killed ranks leave.
#include "runtime/launch/leftovers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/launch/child.h"
#include "runtime/launch/child_wait.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

int code_of(Child& child) {
  while (!child.ended()) wait_for_child(0.05);
  return *child.ended();
}

class Leftovers : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dtorch_leftovers_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }
  fs::path folder_;
};

TEST_F(Leftovers, AChildGetsItsEnvironmentAndReturnsItsCode) {
  Child child({"sh", "-c", "echo \"$COLOUR\"; exit 7"}, {{"COLOUR", "red"}}, (folder_ / "log").string());
  EXPECT_EQ(code_of(child), 7);
  EXPECT_EQ(read("log"), "red\n");
  EXPECT_THROW(Child({"/nowhere/program"}, {}), RuntimeFault);
}

TEST_F(Leftovers, AChildTakesSignalsThatItsParentBlocks) {
  sigset_t before;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  block_supervisor_signals();
  Child child({"sleep", "1000"}, {});
  child.signal(SIGUSR1);
  EXPECT_EQ(code_of(child), 128 + SIGUSR1);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(Leftovers, AGroupEndsWithAllThatItsProgramStarted) {
  Child child({"sh", "-c",
               "sleep 1000 & echo $! > '" + (folder_ / "pid").string() + "'; echo done > '" +
                   (folder_ / "ready").string() + "'; wait"},
              {});
  while (read("ready").empty()) ::usleep(1000);
  const pid_t grandchild = std::stoi(read("pid"));
  EXPECT_EQ(child.end_group(), 128 + SIGKILL);
  std::vector<Process> left;
  left.emplace_back(grandchild);
  EXPECT_EQ(end_processes(left, 10, 10), 0) << "it has ended without being told again";
}

TEST_F(Leftovers, ProcessesOfAJobAreFoundByTheirMarkAndEnded) {
  Child mine({"sleep", "1000"}, {{kSupervisedVariable, "test.17 3"}});
  Child other({"sleep", "1000"}, {{kSupervisedVariable, "test.171 3"}});
  // The mark is there once the program runs.
  std::vector<Process> found;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (found.empty() && std::chrono::steady_clock::now() < deadline) found = supervised_processes("test.17");
  ASSERT_EQ(found.size(), 1u);
  const std::vector<Process> children = descendants_of_this_process();
  EXPECT_TRUE(
      std::any_of(children.begin(), children.end(), [&](const Process& child) { return child.id() == found[0].id(); }));
  found.emplace_back(found[0].id());
  EXPECT_EQ(end_processes(found, 0, 10), 1) << "one process, though named twice";
  EXPECT_EQ(code_of(mine), 128 + SIGKILL);
  EXPECT_FALSE(other.ended());
}

TEST_F(Leftovers, WhatWasStartedBeforeIsNoneOfTheJobs) {
  const Child before({"sleep", "1000"}, {});
  const std::vector<Process> others = descendants_of_this_process();
  ASSERT_FALSE(others.empty());
  EXPECT_TRUE(descendants_of_this_process(others).empty());
  const Child after({"sleep", "1000"}, {});
  EXPECT_EQ(descendants_of_this_process(others).size(), 1u);
}

TEST_F(Leftovers, AProcessThatHasEndedIsGoneAndIsNotEnded) {
  Child child({"sh", "-c", "echo $$"}, {}, (folder_ / "log").string());
  EXPECT_EQ(code_of(child), 0);
  const Process ended(std::stoi(read("log")));
  EXPECT_TRUE(ended.is_gone());
  EXPECT_FALSE(ended.end());
  const Process self(::getpid());
  EXPECT_FALSE(self.is_gone());
}

TEST_F(Leftovers, AChildWhoseEndNobodyKeepsHasEnded) {
  struct sigaction before;
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGCHLD, &ignored, &before), 0);
  Child lost({"sh", "-c", "exit 7"}, {});
  EXPECT_EQ(code_of(lost), -1);
  block_supervisor_signals();
  Child kept({"sh", "-c", "exit 7"}, {});
  EXPECT_EQ(code_of(kept), 7);
  sigaction(SIGCHLD, &before, nullptr);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
}

TEST_F(Leftovers, OnlySegmentsThatNobodyUsesAreRemoved) {
  for (const char* name : {"vader_segment.host.0.1.0", "vader_segment.host.0.1.1", "other"})
    std::ofstream(folder_ / name) << std::string(4096, 'x');
  const int file = ::open((folder_ / "vader_segment.host.0.1.1").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ::close(file);
  EXPECT_EQ(remove_unused_segments(folder_.string()), 1);
  EXPECT_FALSE(fs::exists(folder_ / "vader_segment.host.0.1.0"));
  for (const char* name : {"vader_segment.host.0.1.1", "other"}) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  ::munmap(mapped, 4096);
  EXPECT_EQ(remove_unused_segments(folder_.string()), 1);
}

}  // namespace
}  // namespace dtorch
