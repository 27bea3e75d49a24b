// Random programs (tests/random) on fake accelerators show the mistakes that are planted in these, so that they would
// show one of the worker's.
#include <cstdlib>

#include "runtime/accelerator/fake/fake_faults.h"
#include "tests/random/run_program.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
namespace {

using fake::Faults;

class FakePrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
  }
  void TearDown() override {
    fake::plant({});
    set("DTORCH_DEVICE", "cpu");
    set("DTORCH_DEADLINE", "300");
  }
  static void set(const char* name, const char* value) {
    if (setenv(name, value, 1) != 0) throw InternalError(std::string(name) + " can't be set");
  }
  // What the first of `count` programs has wrong in which something is; "" when all are right.
  static std::string first_problem(const char* device, const Faults& faults, uint64_t count) {
    set("DTORCH_DEVICE", device);
    fake::plant(faults);
    std::string problem;
    const int code = run_in_job(2, 4, [&](Client&) {
      for (uint64_t number = 0; number < count && problem.empty(); ++number)
        problem = run_program(generate_program(number, {.seed = 4})).problem;
      return 0;
    });
    if (code != 0 && problem.empty()) problem = "the job failed";
    fake::plant({});
    return problem;
  }
};

constexpr uint64_t kPrograms = 200;  // until a fault shows

TEST_F(FakePrograms, AreRightWithoutAFault) {
  for (const char* device : {"fake:0:1", "fake:1:2", "fake:2:3"})
    EXPECT_EQ(first_problem(device, {}, 20), "") << device;
}

TEST_F(FakePrograms, FindAMissingWait) {
  using enum StreamKind;
  const std::pair<StreamKind, StreamKind> waits[] = {
      {kCommunication, kCompute}, {kCompute, kCommunication}, {kCompute, kCopy}, {kCopy, kCompute}};
  for (const auto& wait : waits) {
    Faults faults;
    faults.missing_wait = wait;
    EXPECT_NE(first_problem("fake:0:5", faults, kPrograms), "")
        << static_cast<int>(wait.first) << " for " << static_cast<int>(wait.second);
  }
}

TEST_F(FakePrograms, FindMemoryThatIsNotShared) {
  Faults faults;
  faults.missing_share = true;
  EXPECT_NE(first_problem("fake:0:6", faults, kPrograms), "");
}

TEST_F(FakePrograms, FindASwappedOrder) {
  set("DTORCH_DEADLINE", "4");
  Faults faults;
  faults.swap_every = 3;
  EXPECT_NE(first_problem("fake:0:7", faults, kPrograms), "");
}

}  // namespace
}  // namespace dtorch::test
