// What reaches stderr through the logging facade.
#include "runtime/base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

template <class F>
std::string printed(F&& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, FormatsItsArgumentsAsFmtDoes) {
  const std::string name = "layer";
  const std::string text = printed(
      [&] { log_info("{} {:.2f} {} {:>4} {} {}", name, 1.5, true, 7, std::string_view("view"), uint64_t{1} << 63); });
  EXPECT_NE(text.find("layer 1.50 true    7 view 9223372036854775808\n"), std::string::npos) << text;
  EXPECT_NE(text.find("info"), std::string::npos) << text;
}

TEST(Log, PrintsTextWithoutArgumentsAsItIsAndBadFormatsWithTheReason) {
  EXPECT_NE(printed([] { log_warn("{\"json\": {}}"); }).find("{\"json\": {}}\n"), std::string::npos);
  const std::string text = printed([] { log_error("{} and {}", 1); });
  EXPECT_NE(text.find("{} and {} (log format: "), std::string::npos) << text;
}

TEST(Log, LabelsEveryLineWithTheProcess) {
  set_log_label("node 2 at 100%");
  const std::string text = printed([] { log_info("ready"); });
  set_log_label("");
  EXPECT_NE(text.find("[node 2 at 100%] ready\n"), std::string::npos) << text;
  EXPECT_EQ(printed([] { log_info("ready"); }).find("node"), std::string::npos);
}

TEST(Log, DropsWhatIsBelowTheLevel) {
  set_log_level("warn");
  EXPECT_EQ(printed([] { log_info("quiet {}", 1); }), "");
  EXPECT_NE(printed([] { log_warn("loud"); }), "");
  set_log_level("off");
  EXPECT_EQ(printed([] { log_error("quiet"); }), "");
  set_log_level("info");
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
}

TEST(Log, RefusesAnUnknownLevelAndListsTheNames) {
  try {
    set_log_level("warning");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "log level 'warning' is unknown. Allowed: debug, info, warn, error, off");
  }
  try {
    set_log_level("debgu");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "log level 'debgu' is unknown; did you mean 'debug'? Allowed: debug, info, warn, error, off");
  }
  EXPECT_EQ(log_level(), LogLevel::kInfo);
}

TEST(Log, KeepsLinesOfSeveralThreadsWhole) {
  const std::string text = printed([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 100; ++i) log_info("<thread {} line {}>", t, i);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  int lines = 0;
  for (size_t at = 0; at < text.size(); ++lines) {
    const size_t end = text.find('\n', at);
    EXPECT_EQ(text[end - 1], '>');
    at = end + 1;
  }
  EXPECT_EQ(lines, 300);
}

}  // namespace
}  // namespace dtorch
