// What is wrong with a job, told from its ranks' reports.
#include "runtime/launch/rank_report.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

RankReport healthy(int32_t rank, const std::string& host) {
  RankReport report;
  report.rank = rank;
  report.host = host;
  report.version = "DTorch 1";
  report.mpi = "Open MPI v4.1.4";
  report.machine_cores = 4;
  report.cores = {0, 1, 2, 3};
  report.networks = {"eth0 10.0.0.1/24"};
  report.shared_memory_free_bytes = int64_t{1} << 30;
  report.environment = {{"OMP_NUM_THREADS", "1"}};
  return report;
}

std::vector<RankReport> healthy_job() { return {healthy(0, "a"), healthy(1, "a"), healthy(2, "b"), healthy(3, "c")}; }

TEST(RankReports, AHealthyJobHasNoProblem) {
  EXPECT_TRUE(find_problems(healthy_job(), {.asked_ranks = 4, .devices = 6}).empty());
  EXPECT_TRUE(find_problems({healthy(0, "a")}, {.devices = 4}).empty());
}

// One change to a healthy job, and a part of the one sentence that it must give.
struct Mistake {
  const char* name;
  void (*make)(std::vector<RankReport>&);
  const char* says;
  Expectation expected = {};
};

const Mistake kMistakes[] = {
    {"AskedForFourRanks", [](auto& job) { job.resize(1); }, "asked for 4 ranks, I see 1", {.asked_ranks = 4}},
    {"OtherBuild", [](auto& job) { job[2].version = "DTorch 2"; },
     "rank 2 (b) runs DTorch 2, rank 0 (a) runs DTorch 1"},
    {"OtherMpi", [](auto& job) { job[3].mpi = "Open MPI v5"; },
     "rank 3 (c) has Open MPI v5, rank 0 (a) has Open MPI v4.1.4"},
    {"BoundToOneCore",
     [](auto& job) { job[2].cores = {3}; },
     "rank 2 (b) may use 1 of 4 cores (number 3) for 2 threads",
     {.devices = 6}},
    {"MoreThreadsThanCores",
     [](auto& job) { job[3].host = "b"; },
     "b has 4 cores for 6 threads of devices: oversubscribed",
     {.devices = 9}},
    {"NoNetwork", [](auto& job) { job[3].networks.clear(); }, "c has no network interface"},
    {"FullSharedMemory", [](auto& job) { job[0].shared_memory_free_bytes = 5 << 20; },
     "a has 5 MiB free in /dev/shm for 2 ranks"},
    {"SharedGpu",
     [](auto& job) {
       job[2].gpus = job[3].gpus = {"0000:01:00.0", "0000:02:00.0"};
       job[3].host = "b";
     },
     "ranks 2 and 3 on b share GPU 0000:01:00.0"},
    {"OtherEnvironment", [](auto& job) { job[3].environment["OMP_NUM_THREADS"] = "8"; },
     "OMP_NUM_THREADS is '1' on rank 0 (a) and '8' on rank 3 (c)"},
    {"MissingEnvironment", [](auto& job) { job[0].environment["DTORCH_DEVICES"] = "6"; },
     "DTORCH_DEVICES is '6' on rank 0 (a) and unset on rank 1 (a)"},
    {"Folder", [](auto& job) { job[2].folder_problem = "cannot write in 'x': Permission denied"; },
     "rank 2 (b): cannot write in 'x': Permission denied"},
};

class RankMistakes : public testing::TestWithParam<Mistake> {};

TEST_P(RankMistakes, IsOneSentence) {
  std::vector<RankReport> job = healthy_job();
  GetParam().make(job);
  const std::vector<std::string> problems = find_problems(job, GetParam().expected);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find(GetParam().says), std::string::npos) << problems[0];
  EXPECT_EQ(problems[0].find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, RankMistakes, testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

TEST(RankReports, OneOfThisProcessTravelsAsText) {
  ASSERT_EQ(::setenv("OMP_NUM_THREADS", "3", 1), 0);
  RankReport report = look_here();
  EXPECT_EQ(report.pid, ::getpid());
  EXPECT_FALSE(report.host.empty());
  EXPECT_FALSE(report.cores.empty());
  EXPECT_GT(report.shared_memory_free_bytes, 0);
  EXPECT_EQ(report.environment.at("OMP_NUM_THREADS"), "3");
  ASSERT_EQ(::unsetenv("OMP_NUM_THREADS"), 0);
  report.folder_problem = "a \"quoted\" word \xff";
  const RankReport read = from_text(to_text(report));
  EXPECT_EQ(read.cores, report.cores);
  EXPECT_EQ(read.environment, report.environment);
  EXPECT_EQ(read.networks, report.networks);
  EXPECT_EQ(read.folder_problem.substr(0, 16), report.folder_problem.substr(0, 16));
  EXPECT_EQ(to_text(read), to_text(report));
  EXPECT_THROW(from_text("{}"), DecodeError);
  EXPECT_THROW(from_text("no text of a report"), DecodeError);
}

}  // namespace
}  // namespace dtorch
