// Mistakes at the start of a job are one sentence with exit code 1, soon; `devices --check` finds them before.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/programs/run_program.h"

namespace dtorch::test {
namespace {

namespace fs = std::filesystem;

constexpr double kLimitS = 60;

size_t count(const std::string& text, const std::string& word) {
  size_t times = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++times;
  return times;
}

std::vector<std::string> shell(const std::string& before) { return {"sh", "-c", before + "; exec \"$@\"", "sh"}; }

ProgramResult check(int np, std::vector<std::string> wrapper, const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"dtorch_app", "devices", "--check"};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(command, {.np = np, .timeout_s = kLimitS, .wrapper = std::move(wrapper)});
}

TEST(Check, TellsEveryRankAndNoProblemOfItsOwnMaking) {
  for (const int np : {0, 1, 3}) {
    const ProgramResult result = check(np, {});
    EXPECT_FALSE(result.timed_out);
    for (int rank = 0; rank < np; ++rank)
      EXPECT_EQ(count(result.output, "rank " + std::to_string(rank) + " ("), 1u) << result.output;
    // What is wrong with this machine isn't this test's business.
    EXPECT_EQ(count(result.output, "runs DTorch"), 0u) << result.output;
    EXPECT_EQ(count(result.output, "asked for"), 0u) << result.output;
    EXPECT_EQ(count(result.output, " is '"), 0u) << result.output;
    EXPECT_EQ(result.exit_code, count(result.output, "problem: ") == 0 ? 0 : 1) << result.output << result.errors;
  }
}

TEST(Check, NamesWhatDiffersOnOneRank) {
  const ProgramResult result = check(3, shell("[ $OMPI_COMM_WORLD_RANK = 2 ] && export OMP_NUM_THREADS=77"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(count(result.output, "problem: OMP_NUM_THREADS is unset on rank 0"), 1u) << result.output << result.errors;
  EXPECT_EQ(count(result.output, "and '77' on rank 2"), 1u) << result.output;
}

TEST(Check, NamesARankThatIsTiedToOneCore) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this process may use one core only";
  const ProgramResult result = check(3, {"taskset", "-c", "0"}, {"--devices", "4"});
  EXPECT_EQ(result.exit_code, 1);
  for (const char* rank : {"rank 1 ", "rank 2 "}) {
    const size_t at = result.output.find(std::string("problem: ") + rank);
    ASSERT_NE(at, std::string::npos) << result.output << result.errors;
    EXPECT_EQ(result.output.find("may use 1 of", at), result.output.find("may use", at));
  }
}

TEST(Start, ARankThatIsTiedToOneCoreIsToldAtEveryStart) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this process may use one core only";
  const ProgramResult tied = run_program({"dtorch_app", "devices"}, {.np = 3, .wrapper = {"taskset", "-c", "0"}});
  EXPECT_EQ(tied.exit_code, 0) << tied.errors;
  EXPECT_EQ(count(tied.errors, "may use core 0 of"), 2u) << tied.errors;
  const ProgramResult free = run_program({"dtorch_app", "devices"}, {.np = 3});
  EXPECT_EQ(count(free.errors, "may use core"), 0u) << free.errors;
}

// The node's own: rank 0 has no device and asks for none.
TEST(Start, GpusThatANodeDoesNotHaveAreNamedByThatNode) {
  const ProgramResult result = run_program(
      {"dtorch_app", "devices", "--device", "cuda"},
      {.np = 2, .timeout_s = kLimitS, .wrapper = {"env", "DTORCH_CUDA_LIBRARY=/nowhere/libdtorch_cuda.so"}});
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(count(result.errors, "error: "), 1u) << result.errors;
  EXPECT_EQ(count(result.errors, "node 0 failed at start: --device cuda: "), 1u) << result.errors;
}

TEST(Start, EveryNodesAcceleratorsAreTheDevicesWhenNobodySays) {
  const ProgramResult result =
      run_program({"dtorch_app", "devices", "--device", "fake:2"}, {.np = 3, .timeout_s = kLimitS});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(count(result.output, "devices [2, 3]"), 1u) << result.output;
}

TEST(Check, NamesMoreThreadsThanCores) {
  const ProgramResult result = check(2, {}, {"--devices", "4096"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(count(result.output, "cores for 4096 threads of devices: oversubscribed"), 1u) << result.output;
}

TEST(Check, NamesAFolderThatCanNotBeWritten) {
  const std::string folder = scratch_folder("start");
  std::ofstream(folder + "/file") << "no folder";
  for (const int np : {0, 3}) {
    const ProgramResult wrong = check(np, {}, {"--checkpoint-dir", folder + "/file/run"});
    EXPECT_EQ(wrong.exit_code, 1);
    EXPECT_EQ(count(wrong.output, "Not a directory"), 1u) << wrong.output;
    const ProgramResult right = check(np, {}, {"--checkpoint-dir", folder + "/run"});
    EXPECT_EQ(count(right.output, folder), 0u) << right.output;
    EXPECT_TRUE(fs::is_empty(folder + "/run")) << "the check leaves nothing";
  }
  fs::remove_all(folder);
}

TEST(Start, WithoutAMatchingPmiIsOneSentence) {
  const std::vector<std::vector<std::string>> launchers = {
      // srun --mpi=none; srun of a Slurm, and an mpirun, whose PMI this MPI doesn't speak.
      {"env", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=4"},
      {"env", "PMI_RANK=0", "PMI_SIZE=4"},
  };
  for (const std::vector<std::string>& launcher : launchers) {
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--check"}}) {
      std::vector<std::string> command = {"dtorch_app", "devices"};
      command.insert(command.end(), more.begin(), more.end());
      const ProgramResult result = run_program(command, {.timeout_s = kLimitS, .wrapper = launcher});
      EXPECT_EQ(result.exit_code, 1);
      const std::string said = result.output + result.errors;
      EXPECT_EQ(count(said, "asked for 4 ranks, I see 1"), 1u) << said;
      EXPECT_EQ(count(said, "error: ") + count(said, "problem: asked"), 1u) << said;
      EXPECT_EQ(count(said, "srun --mpi=pmix"), 1u) << said;
    }
  }
}

TEST(Start, RanksThatAreNotTheFirstLeaveTheSentenceToIt) {
  const ProgramResult result =
      run_program({"dtorch_app", "devices"},
                  {.timeout_s = kLimitS, .wrapper = {"env", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=4"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output + result.errors, "");
}

// What `dtorch_app COMMAND --config FILE` says when the file holds `text`; the file's path as FILE.
ProgramResult with_config(const std::string& text, std::vector<std::string> command) {
  const std::string folder = scratch_folder("config");
  const std::string path = folder + "/run.conf";
  std::ofstream(path) << text;
  command.insert(command.begin(), "dtorch_app");
  command.insert(command.end(), {"--config", path});
  ProgramResult result = run_program(command);
  for (std::string* said : {&result.output, &result.errors}) {
    for (size_t at = said->find(path); at != std::string::npos; at = said->find(path))
      said->replace(at, path.size(), "FILE");
  }
  fs::remove_all(folder);
  return result;
}

TEST(Config, HoldsOptionsOfEveryProgramToo) {
  const std::string text = "# the job\ndevices = 3\n\ntemplates=off  # slow\n";
  const ProgramResult of_file = with_config(text, {"bench", "--help"});
  EXPECT_EQ(of_file.exit_code, 0);
  const ProgramResult devices = with_config("devices = 3\n", {"plan", "--dp", "2"});
  EXPECT_EQ(devices.exit_code, 1);
  EXPECT_EQ(count(devices.errors, "3 devices"), 1u) << devices.errors;
  const ProgramResult wins = with_config("devices = 3\n", {"plan", "--dp", "3", "--devices=4"});
  EXPECT_EQ(count(wins.errors, "4 devices"), 1u) << wins.errors;
}

TEST(Config, WhatIsWrongIsNamedWithFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"steps = 3\n\nstepz = 4\n", "FILE, line 3: unknown option '--stepz'; did you mean --steps?"},
      {"# x\nsteps = many\n", "FILE, line 2: the argument ('many') for option 'steps' is invalid"},
      {"steps = 3\nlr = 0.1\nsteps = 4\n", "FILE, line 3: steps is there twice"},
      {"steps\n", "FILE, line 1: "},
      {"devices\n", "FILE, line 1: 'devices' is no 'name = value'"},
      {"devices = none\n", "--devices is 'none'; it must be an integer from 1 to 65536"},
  };
  for (const auto& [text, message] : wrong) {
    const ProgramResult result = with_config(text, {"train", "--data", "nothing.h5"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(count(result.errors, message), 1u) << text << result.errors;
  }
  const ProgramResult missing = run_program({"dtorch_app", "train", "--config", "/nothing/run.conf"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(count(missing.errors, "--config: cannot read '/nothing/run.conf'"), 1u) << missing.errors;
}

TEST(Start, AFileThatHoldsNoTokensIsToldInItsUsersWords) {
  const std::string folder = scratch_folder("start");
  std::ofstream(folder + "/text.txt") << "no HDF5";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"/none.h5", "No such file or directory"}, {"", "it is a folder"}, {"/text.txt", "it is no HDF5 file"}};
  for (const auto& [name, message] : wrong) {
    const ProgramResult result = run_program({"dtorch_app", "train", "--data", folder + name});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(count(result.errors, "error: cannot open '" + folder + name + "': " + message), 1u) << result.errors;
  }
  fs::remove_all(folder);
}

TEST(Start, OptionsThatDoNothingAreTold) {
  const ProgramResult idle =
      run_program({"dtorch_app", "plan", "--zero", "2", "--sp", "--layers", "1", "--dim", "16", "--heads", "2"});
  EXPECT_EQ(idle.exit_code, 0) << idle.errors;
  EXPECT_EQ(count(idle.errors, "warning: --zero 2 has no effect without --dp of at least 2"), 1u) << idle.errors;
  EXPECT_EQ(count(idle.errors, "warning: --sp has no effect without --tp of at least 2"), 1u) << idle.errors;
  const ProgramResult misspelt = run_program({"first_program", "--devics", "2"});
  EXPECT_EQ(count(misspelt.errors, "--devics is no option of DTorch; did you mean --devices?"), 1u) << misspelt.errors;
}

}  // namespace
}  // namespace dtorch::test
