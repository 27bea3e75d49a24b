#include "tests/support/cluster.h"

#include <vector>

namespace dtorch::test {
namespace {

Client* shared_client = nullptr;

}  // namespace

int run_in_job(int nodes, int64_t devices, const std::function<int(Client&)>& program) {
  std::vector<std::string> words = {
      "test", "--nodes", std::to_string(nodes), "--devices", std::to_string(devices), "--check-metadata", "on"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return run(static_cast<int>(words.size()), argv.data(), [&](Client& client, int, char**) {
    shared_client = &client;
    const int exit_code = program(client);
    shared_client = nullptr;
    return exit_code;
  });
}

int run_tests(int argc, char** argv, int nodes, int64_t devices) {
  ::testing::InitGoogleTest(&argc, argv);
  // Listing tests needs no job.
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  return run_in_job(nodes, devices, [](Client&) { return RUN_ALL_TESTS(); });
}

Client& client() {
  if (shared_client == nullptr) throw InternalError("no job runs: main() must call run_tests() or run_in_job()");
  return *shared_client;
}

bool have_kernels() { return DTORCH_WITH_KERNELS != 0; }

void ClusterTest::SetUp() {
  client().set_implicit_redistribution(true);
  client().manual_seed(0);
}

void ClusterTest::TearDown() {
  client().set_implicit_redistribution(true);
  try {
    client().synchronize();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the test left a failure unread: " << error.what();
  }
}

void KernelTest::SetUp() {
  ClusterTest::SetUp();
  if (!have_kernels()) GTEST_SKIP() << "this build has no kernels";
}

DeviceMesh cpu_mesh(const Shape& shape, std::vector<std::string> names) {
  return init_device_mesh("cpu", shape, std::move(names));
}

}  // namespace dtorch::test
