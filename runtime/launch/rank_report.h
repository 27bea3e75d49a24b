// What one rank of a job knows about its process and machine, and what is wrong with the ranks' answers taken together.
// Pure but for look_here(); the start of `dtorch_app devices --check` (doctor.h).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtorch {

struct RankReport {
  int32_t rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string version;                // of DTorch, with the wire form's
  std::string mpi;                    // the library's own words
  int32_t machine_cores = 0;          // of the host
  std::vector<int32_t> cores = {};    // that the process may use
  std::vector<std::string> networks;  // "eth0 10.0.0.3/24": IPv4 interfaces that are up, without loopback
  int64_t shared_memory_free_bytes = 0;
  std::vector<std::string> gpus;                   // identities of the GPUs that the process sees
  std::string gpu_text;                            // what they are, a line each; "" where there are none
  std::map<std::string, std::string> environment;  // variables that change what a rank does
  std::string folder_problem;                      // why the folder that was asked about can't be used; "" if it can
};

// Of this process. `rank` and `mpi` are the caller's.
RankReport look_here();

// JSON text. from_text throws DecodeError.
std::string to_text(const RankReport& report);
RankReport from_text(const std::string& text);

// What the job was meant to be.
struct Expectation {
  int64_t asked_ranks = 0;  // as the launcher's environment says; 0: unknown
  int64_t devices = 0;      // over all nodes; 0: one a node
  int32_t threads_per_device = 1;
};

// One sentence a problem, with its likely cause. `reports` has all ranks in order; empty when all is well.
std::vector<std::string> find_problems(const std::vector<RankReport>& reports, const Expectation& expected);

// A few lines a rank, for people.
std::string describe(const RankReport& report);

}  // namespace dtorch
