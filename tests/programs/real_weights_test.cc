// SmolLM2-135M against what PyTorch computes from the same weights (tests/golden/reference/smollm2.json), on several
// layouts. Needs the file that scripts/fetch_smollm2.sh fetches; skipped without it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "io/tokenizer.h"
#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

struct Case {
  std::string name, layout;
  int np = 0;
};

class RealWeights : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (runs_under_sanitizer()) GTEST_SKIP() << "135 million parameters take too long under sanitizers";
    model_ = source_path("data/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (!std::filesystem::exists(model_)) GTEST_SKIP() << model_ << " isn't there; scripts/fetch_smollm2.sh fetches it";
    std::ifstream file(source_path("tests/golden/reference/smollm2.json"));
    reference_ = nlohmann::json::parse(file);
    folder_ = scratch_folder("real_weights");
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  ProgramResult run(std::vector<std::string> command) const {
    std::istringstream in(GetParam().layout);
    for (std::string word; in >> word;) command.push_back(word);
    return run_program(command, {.np = GetParam().np, .timeout_s = 300});
  }
  std::string model_, folder_;
  nlohmann::json reference_;
};

TEST_P(RealWeights, LogitsAndMeanCrossEntropyAreTheReferences) {
  std::vector<std::string> command = {"dtorch_app", "evaluate", "--model", model_, "--top", "16"};
  const auto add_text = [&](const std::string& text) {
    const std::string path = folder_ + "/" + std::to_string(command.size()) + ".txt";
    std::ofstream(path, std::ios::binary) << text;
    command.insert(command.end(), {"--text", path});
  };
  for (const nlohmann::json& prompt : reference_.at("prompts")) add_text(prompt.at("text"));
  const auto tokens = reference_.at("perplexity").at("tokens").get<std::vector<int64_t>>();
  const auto tokenizer = gguf_tokenizer(model_);
  const std::string text = tokenizer->decode(tokens);
  ASSERT_EQ(tokenizer->encode(text), tokens);
  add_text(text);
  const ProgramResult result = run(command);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::istringstream lines(result.output);
  std::string line;
  for (const nlohmann::json& prompt : reference_.at("prompts")) {
    SCOPED_TRACE(prompt.at("text"));
    ASSERT_TRUE(std::getline(lines, line)) << result.output;
    const nlohmann::json found = nlohmann::json::parse(line);
    EXPECT_EQ(found.at("tokens").get<size_t>(), prompt.at("token_ids").size());
    std::map<int64_t, double> logits;
    for (const auto& [token, value] : found.at("last_logits").get<std::vector<std::pair<int64_t, double>>>())
      logits[token] = value;
    for (const auto& [token, value] : prompt.at("last_logits_top8").get<std::vector<std::pair<int64_t, double>>>()) {
      ASSERT_TRUE(logits.contains(token)) << token;
      EXPECT_NEAR(logits[token], value, 1e-3) << token;
    }
  }
  ASSERT_TRUE(std::getline(lines, line)) << result.output;
  const nlohmann::json found = nlohmann::json::parse(line);
  EXPECT_EQ(found.at("tokens").get<size_t>(), tokens.size());
  EXPECT_NEAR(found.at("cross_entropy").get<double>(),
              reference_.at("perplexity").at("mean_cross_entropy").get<double>(), 1e-4);
}

TEST_P(RealWeights, GreedyTextIsTheReferences) {
  std::vector<std::string> command = {"dtorch_app", "generate", "--model", model_, "--temperature", "0"};
  size_t longest = 0;
  for (const nlohmann::json& prompt : reference_.at("prompts")) {
    longest = std::max(longest, prompt.at("greedy_ids").size());
    command.insert(command.end(), {"--prompt", prompt.at("text")});
  }
  command.insert(command.end(), {"--tokens", std::to_string(longest)});
  const ProgramResult result = run(command);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  size_t begin = 0;
  for (const nlohmann::json& prompt : reference_.at("prompts")) {
    const std::string expected = prompt.at("text").get<std::string>() + prompt.at("greedy_text").get<std::string>();
    EXPECT_EQ(result.output.substr(begin, expected.size()), expected);
    // The reference stops a prompt early; this goes on.
    begin = result.output.find("\n\n", begin + expected.size());
    ASSERT_NE(begin, std::string::npos) << result.output;
    begin += 2;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, RealWeights,
                         testing::Values(Case{"one_device", "--devices 1"},
                                         Case{"tp2_uneven_heads", "--devices 2 --dp 1 --tp 2", 3},
                                         Case{"tp3", "--devices 3 --dp 1 --tp 3"},
                                         Case{"pp2", "--devices 2 --dp 1 --pp 2", 3},
                                         Case{"zero3", "--devices 2 --dp 2 --zero 3", 3},
                                         Case{"tp3_pp2", "--devices 6 --dp 1 --tp 3 --pp 2"},
                                         Case{"ulysses2", "--devices 2 --dp 1 --cp-ulysses 2", 3},
                                         Case{"ring2", "--devices 2 --dp 1 --cp-ring 2"},
                                         // Every feed-forward part cut into experts that all compute, with weight 1.
                                         Case{"experts_one_device", "--devices 1 --cut-experts 4"},
                                         Case{"experts_ep2_tp3", "--devices 6 --ep 2 --tp 3 --cut-experts 4"}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

class RealTokenizer : public testing::Test {};

TEST_F(RealTokenizer, TokensAreThoseOfTheReference) {
  const std::string model = source_path("data/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(model)) GTEST_SKIP() << model << " isn't there; scripts/fetch_smollm2.sh fetches it";
  std::ifstream file(source_path("tests/golden/reference/smollm2.json"));
  const nlohmann::json reference = nlohmann::json::parse(file);
  const auto tokenizer = gguf_tokenizer(model);
  for (const nlohmann::json& prompt : reference.at("prompts")) {
    EXPECT_EQ(tokenizer->encode(prompt.at("text").get<std::string>()),
              prompt.at("token_ids").get<std::vector<int64_t>>());
    EXPECT_EQ(tokenizer->decode(prompt.at("greedy_ids").get<std::vector<int64_t>>()),
              prompt.at("greedy_text").get<std::string>());
  }
}

}  // namespace
}  // namespace dtorch::test
