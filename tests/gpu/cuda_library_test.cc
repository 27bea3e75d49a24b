// `--device cuda` where it can't work: one sentence each that says what was found.
#include "runtime/gpu/cuda_library.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/gpu/driver.h"

namespace dtorch::test {
namespace {

constexpr int kCuda13 = 13000;
const DriverFacts kGood{
    .load_error = "", .init_code = 0, .init_name = "", .version = 13000, .num_devices = 2, .visible = {}};

TEST(DriverProblem, NothingIsWrongWithANewerDriverOrOneOfTheSameMajorVersion) {
  for (int version : {13000, 13020, 14000}) {
    DriverFacts facts = kGood;
    facts.version = version;
    EXPECT_EQ(driver_problem(facts, 13010), "");
  }
}

TEST(DriverProblem, NoDriver) {
  DriverFacts facts = kGood;
  facts.load_error = "libcuda.so.1: cannot open shared object file: No such file or directory";
  EXPECT_EQ(driver_problem(facts, kCuda13),
            "no NVIDIA driver is on this machine (libcuda.so.1: cannot open shared object file: No such file or "
            "directory); run on a node with GPUs, or in a container that is given them");
}

TEST(DriverProblem, DriverTooOldForTheToolkit) {
  DriverFacts facts = kGood;
  facts.version = 12040;
  EXPECT_EQ(
      driver_problem(facts, kCuda13),
      "the NVIDIA driver serves CUDA 12.4 and older, this DTorch and its LibTorch are built for CUDA 13.0; a newer "
      "driver is needed, or a build with a LibTorch for CUDA 12");
}

TEST(DriverProblem, NoGpuIsVisible) {
  DriverFacts facts = kGood;
  facts.init_code = 100;
  facts.init_name = "CUDA_ERROR_NO_DEVICE";
  facts.num_devices = 0;
  EXPECT_EQ(driver_problem(facts, kCuda13), "the NVIDIA driver (CUDA 13.0) sees no GPU; CUDA_VISIBLE_DEVICES is unset");
  facts.visible = "7";
  EXPECT_EQ(driver_problem(facts, kCuda13), "the NVIDIA driver (CUDA 13.0) sees no GPU; CUDA_VISIBLE_DEVICES is '7'");
  facts.init_code = 0;
  facts.visible = "";
  EXPECT_EQ(driver_problem(facts, kCuda13), "the NVIDIA driver (CUDA 13.0) sees no GPU; CUDA_VISIBLE_DEVICES is ''");
}

TEST(DriverProblem, DriverThatDoesntStart) {
  DriverFacts facts = kGood;
  facts.init_code = 803;
  facts.init_name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
  EXPECT_EQ(driver_problem(facts, kCuda13),
            "the NVIDIA driver (CUDA 13.0) doesn't start: cuInit gives 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH); "
            "CUDA_VISIBLE_DEVICES is unset");
}

TEST(CudaLibrary, IsLookedForBesideTheProgramAndWhereItWasBuilt) {
  EXPECT_EQ(cuda_library_paths("/x/bin/app", {"/x/lib", "/build/lib"}, nullptr),
            (std::vector<std::string>{"/x/bin/libdtorch_cuda.so", "/x/lib/libdtorch_cuda.so",
                                      "/build/lib/libdtorch_cuda.so"}));
  EXPECT_EQ(cuda_library_paths("/x/bin/app", {"/build/lib"}, ""),
            (std::vector<std::string>{"/x/bin/libdtorch_cuda.so", "/x/lib/libdtorch_cuda.so",
                                      "/build/lib/libdtorch_cuda.so"}));
  EXPECT_EQ(cuda_library_paths("/x/bin/app", {"/build/lib"}, "/mine.so"), (std::vector<std::string>{"/mine.so"}));
}

TEST(CudaLibrary, MustBeOfTheSameVersionsAsTheProgram) {
  CudaBuild program;
  program.dtorch_version = "0.1.0";
  program.torch_version = "2.11.0";
  EXPECT_EQ(unlike_builds(program, {"0.1.0", "2.11.0", kCuda13, nullptr}), "");
  EXPECT_EQ(unlike_builds(program, {"0.1.0", "2.9.1", kCuda13, nullptr}),
            "was built with LibTorch 2.9.1, this program with 2.11.0; build both with one");
  EXPECT_EQ(unlike_builds(program, {"0.2.0", "2.11.0", kCuda13, nullptr}), "is of DTorch 0.2.0, this program of 0.1.0");
}

// On a machine without a GPU: the real thing.
TEST(CudaLibrary, SaysInOneSentenceWhyItIsntLoaded) {
  if (cuda_build().cuda_version != 0 && driver_problem(look_at_driver(), cuda_build().cuda_version).empty())
    GTEST_SKIP() << "a GPU is here";
  try {
    load_cuda_library();
    FAIL() << "it was loaded";
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find("--device cuda: "), 0u) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
    if (cuda_build().cuda_version == 0) {
      EXPECT_NE(what.find("no CUDA backend"), std::string::npos) << what;
    }
  }
}

}  // namespace
}  // namespace dtorch::test
