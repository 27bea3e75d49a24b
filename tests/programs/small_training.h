// A small training run for tests of how jobs end: its data, its command, its losses.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/programs/run_program.h"

namespace dtorch::test {

// A token file of a little repetitive text, and a folder for a run.
class SmallTraining : public testing::Test {
 public:
  // Loss by step of a metrics file; of a step that was done twice, the later one.
  static std::map<int64_t, double> losses(const std::string& path) {
    std::map<int64_t, double> out;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      out[json.at("step")] = json.at("loss");
    }
    return out;
  }

 protected:
  void SetUp() override {
    folder_ = scratch_folder("training");
    std::ofstream text(folder_ + "/text.txt");
    for (int i = 0; i < 2000; ++i) text << "line " << i * 7919 % 1000 << " of a small text.\n";
    text.close();
    const ProgramResult prepared =
        run_program({"dtorch_app", "prepare", "--text", folder_ + "/text.txt", "--out", folder_ + "/text.h5"});
    ASSERT_EQ(prepared.exit_code, 0) << prepared.errors;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // "train" and its options, four devices in two dimensions.
  std::vector<std::string> train(const std::vector<std::string>& more) const {
    std::vector<std::string> command = {"train",
                                        "--data",
                                        folder_ + "/text.h5",
                                        "--dim",
                                        "32",
                                        "--layers",
                                        "2",
                                        "--heads",
                                        "2",
                                        "--length",
                                        "32",
                                        "--batch",
                                        "4",
                                        "--devices",
                                        "4",
                                        "--dp",
                                        "2",
                                        "--tp",
                                        "2",
                                        "--log-every",
                                        "1",
                                        "--validation-share",
                                        "0"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::string folder_;
};

// That two metrics files hold the same steps with the same losses, to the last bit; says where they part.
inline void expect_same_losses(const std::string& found, const std::string& expected) {
  const auto losses = SmallTraining::losses(found), others = SmallTraining::losses(expected);
  EXPECT_EQ(losses.size(), others.size()) << found;
  for (const auto& [step, loss] : others) {
    ASSERT_TRUE(losses.contains(step)) << found << " has no step " << step;
    ASSERT_EQ(losses.at(step), loss) << std::setprecision(17) << "step " << step << ": " << losses.at(step)
                                     << " instead of " << loss;
  }
}

inline bool has_step(const std::string& output, int step) {
  return output.find("] " + std::to_string(step) + "/") != std::string::npos;
}

}  // namespace dtorch::test
