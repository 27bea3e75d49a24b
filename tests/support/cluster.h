// One job for all tests of a program: run_tests() starts the nodes inside this process, runs GoogleTest as the job's
// program and ends the job. A test runs on the client's thread.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "dtorch/dtorch.h"

namespace dtorch::test {

// main() of a folder of tests. Returns the exit code: 0 when every test passed and the job ended in order.
int run_tests(int argc, char** argv, int nodes, int64_t devices);
// Runs `program` in a job of its own (nodes as threads of this process). Returns the job's exit code.
int run_in_job(int nodes, int64_t devices, const std::function<int(Client&)>& program);

// The client of the job that runs. Throws when none does.
Client& client();
// False in builds without LibTorch, where only creation from constants and host data, redistribution and reads run.
bool have_kernels();

// A test on the shared job. After it implicit redistribution is on again, and nothing that failed is left unread.
class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
};
// The same, for tests that run kernels: skipped in builds without them.
class KernelTest : public ClusterTest {
 protected:
  void SetUp() override;
};

// Devices 0, 1, ... in a mesh without names, or with.
DeviceMesh cpu_mesh(const Shape& shape, std::vector<std::string> names = {});

}  // namespace dtorch::test
