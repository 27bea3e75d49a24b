// The file that says how a job ended: where it may lie, and which command line asks for it.
#include "runtime/launch/result_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

namespace fs = std::filesystem;

class ResultFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "dtorch_result_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(ResultFile, WhatIsNoFileIsRefusedAndStays) {
  const fs::path pipe = folder_ / "pipe", folder = folder_ / "folder", link = folder_ / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directory(folder);
  fs::create_symlink(pipe, link);
  for (const fs::path& path : {pipe, folder, link}) {
    EXPECT_THROW(clear_result(path.string()), UserError) << path;
    write_result(path.string(), {});
    EXPECT_TRUE(fs::exists(fs::symlink_status(path)) && !fs::is_regular_file(path)) << path;
  }
}

TEST_F(ResultFile, WhatAnEarlierJobLeftIsRemoved) {
  const std::string path = folder_ / "result";
  clear_result(path);
  write_result(path, result_of_code(kDone));
  EXPECT_TRUE(fs::exists(path));
  clear_result(path);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(ResultFile, ALostPeerHasItsOwnCode) {
  const JobResult result = result_of(std::make_exception_ptr(PeerLost("the launcher (mpirun) is gone")));
  EXPECT_EQ(result.code, kPeerLost);
  EXPECT_EQ(result.status, "peer lost");
}

TEST_F(ResultFile, ItsOptionIsTakenOutOfACommandLine) {
  using Words = std::vector<std::string>;
  const struct {
    Words given;
    std::string file;
    Words left;
  } cases[] = {
      {{"train", "--result", "r.json", "--steps", "3"}, "r.json", {"train", "--steps", "3"}},
      {{"train", "--result=r.json"}, "r.json", {"train"}},
      {{"train", "--results=r.json"}, "", {"train", "--results=r.json"}},
      {{"train", "--", "--result", "r.json"}, "", {"train", "--", "--result", "r.json"}},
      {{"train", "--result"}, "", {"train", "--result"}},
      {{"a", "--result", "b", "--result=c"}, "b", {"a", "--result=c"}},
  };
  for (const auto& item : cases) {
    Words words = item.given;
    EXPECT_EQ(take_result_option(words), item.file);
    EXPECT_EQ(words, item.left);
  }
}

}  // namespace
}  // namespace dtorch
