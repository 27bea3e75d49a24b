// `dtorch_app evaluate` over texts longer than a piece, and the words of `dtorch_app checkpoint`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

// A small model, trained for two steps on bytes.
class Evaluate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = scratch_folder("evaluate");
    for (int i = 0; i < 400; ++i) text_ += "verse " + std::to_string(i * 7919 % 1000) + " of a small book; ";
    write("text.txt", text_);
    succeed({"dtorch_app", "prepare", "--text", folder_ + "/text.txt", "--out", folder_ + "/text.h5"});
    succeed({"dtorch_app",
             "train",
             "--data",
             folder_ + "/text.h5",
             "--dim",
             "16",
             "--layers",
             "1",
             "--heads",
             "2",
             "--length",
             "16",
             "--batch",
             "4",
             "--steps",
             "2",
             "--validation-share",
             "0",
             "--dtype",
             "float64",
             "--checkpoint-dir",
             folder_ + "/run"});
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }
  std::string succeed(const std::vector<std::string>& command) const {
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  }
  nlohmann::json evaluate(const std::string& text, const std::vector<std::string>& more = {}) const {
    write("part.txt", text);
    std::vector<std::string> command = {"dtorch_app",     "evaluate", "--checkpoint",
                                        folder_ + "/run", "--text",   folder_ + "/part.txt"};
    command.insert(command.end(), more.begin(), more.end());
    return nlohmann::json::parse(succeed(command));
  }
  std::string folder_, text_;
};

TEST_F(Evaluate, OfALongTextEveryTokenIsPredictedOnceInPiecesOfTheContext) {
  // 16 tokens are the context: pieces begin at 0, 15 and 30.
  const nlohmann::json whole = evaluate(text_.substr(0, 40));
  EXPECT_EQ(whole.at("tokens"), 40);
  EXPECT_EQ(whole.at("pieces"), 3);
  const nlohmann::json first = evaluate(text_.substr(0, 16)), second = evaluate(text_.substr(15, 16)),
                       third = evaluate(text_.substr(30, 10));
  EXPECT_EQ(first.at("pieces"), 1);
  const double expected =
      (15 * first.at("cross_entropy").get<double>() + 15 * second.at("cross_entropy").get<double>() +
       9 * third.at("cross_entropy").get<double>()) /
      39;
  EXPECT_NEAR(whole.at("cross_entropy").get<double>(), expected, 1e-12);
  EXPECT_EQ(whole.at("last_logits"), third.at("last_logits"));
  EXPECT_EQ(evaluate(text_, {"--tokens", "40"}), whole);
  EXPECT_EQ(evaluate(text_, {"--tokens", "40", "--piece", "9"}).at("pieces"), 5);
  EXPECT_EQ(evaluate(text_, {"--tokens", "31"}).at("pieces"), 2) << "no piece of one token";
  const ProgramResult refused = run_program(
      {"dtorch_app", "evaluate", "--checkpoint", folder_ + "/run", "--text", folder_ + "/text.txt", "--piece", "1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.errors.find("--piece must be 0 or at least 2"), std::string::npos) << refused.errors;
}

TEST_F(Evaluate, CheckpointTakesWordsOrOptionsAndSaysWhatIsMissing) {
  const std::string listed = succeed({"dtorch_app", "checkpoint", "ls", folder_ + "/run"});
  EXPECT_NE(listed.find("step 2"), std::string::npos) << listed;
  EXPECT_EQ(succeed({"dtorch_app", "checkpoint", "--do", "ls", "--path", folder_ + "/run"}), listed);
  EXPECT_EQ(succeed({"dtorch_app", "checkpoint", "--path", folder_ + "/run", "--do", "ls"}), listed);
  EXPECT_NE(succeed({"dtorch_app", "checkpoint", "diff", folder_ + "/run", folder_ + "/run"}).find("no tensor differs"),
            std::string::npos);
  const auto errors = [](const std::vector<std::string>& command) {
    const ProgramResult result = run_program(command);
    EXPECT_EQ(result.exit_code, 1);
    return result.errors;
  };
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"dtorch_app", "checkpoint"}, {"dtorch_app", "checkpoint", "list", folder_}})
    EXPECT_NE(errors(command).find("checkpoint can ls, verify, diff and export"), std::string::npos);
  EXPECT_NE(errors({"dtorch_app", "checkpoint", "ls"}).find("checkpoint ls takes 1 path"), std::string::npos);
}

}  // namespace
}  // namespace dtorch::test
