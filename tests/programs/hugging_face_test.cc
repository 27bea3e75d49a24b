// SmolLM2-135M from safetensors under Hugging Face's names, in one file and in three with an index, on one device and
// on two: what it says of a text is what the GGUF file's weights say. Skipped without the files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

struct Case {
  std::string name, folder, layout;
  int np = 0;
};

class HuggingFace : public testing::TestWithParam<Case> {};

TEST_P(HuggingFace, GivesTheLogitsOfTheGgufFile) {
  if (runs_under_sanitizer()) GTEST_SKIP() << "135 million parameters take too long under sanitizers";
  const std::string gguf = source_path("data/SmolLM2-135M-Instruct.Q4_1.gguf"),
                    model = source_path("data/hugging_face/" + GetParam().folder);
  if (!std::filesystem::exists(gguf) || !std::filesystem::exists(model))
    GTEST_SKIP() << model << " isn't there; scripts/smollm2_as_hugging_face.sh makes it";
  const std::string folder = scratch_folder("hugging_face"), text = folder + "/text.txt";
  std::ofstream(text) << "The capital of France is Paris, and that of Italy is";
  const auto evaluate = [&](std::vector<std::string> more) {
    std::vector<std::string> command = {"dtorch_app", "evaluate", "--text", text, "--top", "16"};
    command.insert(command.end(), more.begin(), more.end());
    std::istringstream in(GetParam().layout);
    for (std::string word; in >> word;) command.push_back(word);
    const ProgramResult result = run_program(command, {.np = GetParam().np, .timeout_s = 300});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return nlohmann::json::parse(result.output);
  };
  const nlohmann::json expected = evaluate({"--model", gguf}),
                       found = evaluate({"--model", model, "--tokenizer", gguf});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, HuggingFace,
                         testing::Values(Case{"sharded_on_one_device", "sharded", "--devices 1"},
                                         Case{"one_file_on_tp_2", "one", "--devices 2 --dp 1 --tp 2", 3}),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace dtorch::test
