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

TEST_P(RealWeights, LogitsAreWithinAThousandthAndGreedyTextIsTheSame) {
  for (const nlohmann::json& prompt : reference_.at("prompts")) {
    const auto text = prompt.at("text").get<std::string>();
    SCOPED_TRACE(text);
    std::ofstream(folder_ + "/prompt.txt", std::ios::binary) << text;
    const ProgramResult result =
        run({"dtorch_app", "evaluate", "--model", model_, "--text", folder_ + "/prompt.txt", "--top", "16"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const nlohmann::json line = nlohmann::json::parse(result.output);
    EXPECT_EQ(line.at("tokens").get<size_t>(), prompt.at("token_ids").size());
    std::map<int64_t, double> logits;
    for (const auto& [token, value] : line.at("last_logits").get<std::vector<std::pair<int64_t, double>>>())
      logits[token] = value;
    for (const auto& [token, value] : prompt.at("last_logits_top8").get<std::vector<std::pair<int64_t, double>>>()) {
      ASSERT_TRUE(logits.contains(token)) << token;
      EXPECT_NEAR(logits[token], value, 1e-3) << token;
    }
    const std::string tokens = std::to_string(prompt.at("greedy_ids").size());
    const ProgramResult said =
        run({"dtorch_app", "generate", "--model", model_, "--temperature", "0", "--tokens", tokens, "--prompt", text});
    ASSERT_EQ(said.exit_code, 0) << said.errors;
    EXPECT_EQ(said.output, text + prompt.at("greedy_text").get<std::string>() + "\n");
  }
}

TEST_P(RealWeights, TheMeanCrossEntropyOfATextIsTheReferences) {
  const auto tokens = reference_.at("perplexity").at("tokens").get<std::vector<int64_t>>();
  const auto tokenizer = gguf_tokenizer(model_);
  const std::string text = tokenizer->decode(tokens);
  ASSERT_EQ(tokenizer->encode(text), tokens);
  std::ofstream(folder_ + "/text.txt", std::ios::binary) << text;
  const ProgramResult result = run({"dtorch_app", "evaluate", "--model", model_, "--text", folder_ + "/text.txt"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const nlohmann::json line = nlohmann::json::parse(result.output);
  EXPECT_EQ(line.at("tokens").get<size_t>(), tokens.size());
  EXPECT_NEAR(line.at("cross_entropy").get<double>(),
              reference_.at("perplexity").at("mean_cross_entropy").get<double>(), 1e-4);
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
