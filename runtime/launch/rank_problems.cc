// What is wrong with a job, from its ranks' reports; rank_report.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "runtime/launch/rank_report.h"

namespace dtorch {

namespace {

using Reports = std::vector<RankReport>;

// Open MPI's messages between the ranks of a host lie there: some 4 MiB for a rank and its neighbours.
constexpr int64_t kSharedMemoryBytesPerRank = int64_t{32} << 20;

std::string name_of(const RankReport& report) { return fmt::format("rank {} ({})", report.rank, report.host); }

std::map<std::string, std::vector<const RankReport*>> by_host(const Reports& reports) {
  std::map<std::string, std::vector<const RankReport*>> hosts;
  for (const RankReport& report : reports) hosts[report.host].push_back(&report);
  return hosts;
}

// Sub-Controllers run devices; rank 0 does where it is alone.
bool runs_devices(const RankReport& report, const Reports& reports) { return report.rank > 0 || reports.size() == 1; }

int64_t num_nodes(const Reports& reports) { return std::max<int64_t>(1, static_cast<int64_t>(reports.size()) - 1); }

// Of the node that has most.
int64_t devices_per_node(const Reports& reports, const Expectation& expected) {
  const int64_t nodes = num_nodes(reports);
  return expected.devices == 0 ? 1 : (expected.devices + nodes - 1) / nodes;
}

using Sentences = std::vector<std::string>;

void check_size(const Reports& reports, const Expectation& expected, Sentences& problems) {
  const auto seen = static_cast<int64_t>(reports.size());
  if (expected.asked_ranks > 0 && expected.asked_ranks != seen) {
    problems.push_back(
        fmt::format("asked for {} ranks, I see {}: srun without a matching PMI, or another MPI's mpirun? (try srun "
                    "--mpi=pmix, or the mpirun that DTorch was built with)",
                    expected.asked_ranks, seen));
  }
}

void check_versions(const Reports& reports, Sentences& problems) {
  const RankReport& first = reports.front();
  for (const RankReport& report : reports) {
    if (report.version != first.version) {
      problems.push_back(fmt::format("{} runs {}, {} runs {}: another build on that node?", name_of(report),
                                     report.version, name_of(first), first.version));
    }
    if (report.mpi != first.mpi) {
      problems.push_back(fmt::format("{} has {}, {} has {}: other modules or another container on that node?",
                                     name_of(report), report.mpi, name_of(first), first.mpi));
    }
  }
}

void check_cores(const Reports& reports, const Expectation& expected, Sentences& problems) {
  const int64_t threads = devices_per_node(reports, expected) * expected.threads_per_device;
  std::map<std::string, int64_t> wanted_on;
  for (const RankReport& report : reports) {
    if (!runs_devices(report, reports)) continue;
    wanted_on[report.host] += threads;
    const auto allowed = static_cast<int64_t>(report.cores.size());
    if (allowed < threads && allowed < report.machine_cores) {
      problems.push_back(fmt::format(
          "{} may use {} of {} cores (number {}) for {} threads of its devices: bound by the launcher? (mpirun "
          "--bind-to none, srun --cpu-bind=none, or more --cpus-per-task)",
          name_of(report), allowed, report.machine_cores, fmt::join(report.cores, ", "), threads));
    }
  }
  for (const auto& [host, ranks] : by_host(reports)) {
    const int64_t cores = ranks.front()->machine_cores;
    if (wanted_on[host] > cores) {
      problems.push_back(fmt::format(
          "{} has {} cores for {} threads of devices: oversubscribed; fewer --devices, --threads-per-device or ranks "
          "on that host, or more nodes",
          host, cores, wanted_on[host]));
    }
  }
}

void check_networks(const Reports& reports, Sentences& problems) {
  const auto hosts = by_host(reports);
  if (hosts.size() < 2) return;
  for (const auto& [host, ranks] : hosts) {
    if (ranks.front()->networks.empty()) {
      problems.push_back(
          fmt::format("{} has no network interface that is up besides loopback: its link is down, or the container "
                      "hides it",
                      host));
    }
  }
}

void check_shared_memory(const Reports& reports, Sentences& problems) {
  for (const auto& [host, ranks] : by_host(reports)) {
    const int64_t needed = kSharedMemoryBytesPerRank * static_cast<int64_t>(ranks.size());
    const int64_t free = ranks.front()->shared_memory_free_bytes;
    if (ranks.size() > 1 && free < needed) {
      problems.push_back(
          fmt::format("{} has {} MiB free in /dev/shm for {} ranks, {} MiB are wanted: files left by killed jobs "
                      "(vader_segment.*), or a container's small default (docker --shm-size)?",
                      host, free >> 20, ranks.size(), needed >> 20));
    }
  }
}

void check_gpus(const Reports& reports, Sentences& problems) {
  for (const auto& [host, ranks] : by_host(reports)) {
    std::map<std::string, const RankReport*> owner;
    std::set<const RankReport*> told;
    for (const RankReport* rank : ranks) {
      if (!runs_devices(*rank, reports)) continue;
      for (const std::string& gpu : rank->gpus) {
        const auto [at, is_first] = owner.emplace(gpu, rank);
        if (is_first || !told.insert(rank).second) continue;
        problems.push_back(
            fmt::format("ranks {} and {} on {} share GPU {}: one Sub-Controller a node, or CUDA_VISIBLE_DEVICES of its "
                        "own for each (srun --gpus-per-task)",
                        at->second->rank, rank->rank, host, gpu));
      }
    }
  }
}

std::string quote(const std::map<std::string, std::string>& environment, const std::string& name) {
  const auto at = environment.find(name);
  return at == environment.end() ? "unset" : "'" + at->second + "'";
}

void check_environment(const Reports& reports, Sentences& problems) {
  std::set<std::string> names;
  for (const RankReport& report : reports) {
    for (const auto& [name, unused] : report.environment) names.insert(name);
  }
  const RankReport& first = reports.front();
  for (const std::string& name : names) {
    const std::string expected = quote(first.environment, name);
    const auto other = std::find_if(reports.begin(), reports.end(), [&](const RankReport& report) {
      return quote(report.environment, name) != expected;
    });
    if (other == reports.end()) continue;
    problems.push_back(
        fmt::format("{} is {} on {} and {} on {}: mpirun passes on only what -x names and what starts with OMPI_MCA_; "
                    "or a node's login files set it",
                    name, expected, name_of(first), quote(other->environment, name), name_of(*other)));
  }
}

}  // namespace

std::vector<std::string> find_problems(const std::vector<RankReport>& reports, const Expectation& expected) {
  Sentences problems;
  check_size(reports, expected, problems);
  check_versions(reports, problems);
  check_cores(reports, expected, problems);
  check_networks(reports, problems);
  check_shared_memory(reports, problems);
  check_gpus(reports, problems);
  check_environment(reports, problems);
  for (const RankReport& report : reports) {
    if (!report.folder_problem.empty()) problems.push_back(name_of(report) + ": " + report.folder_problem);
  }
  return problems;
}

std::string describe(const RankReport& report) {
  return fmt::format("{}, process {}: {}, {}; {} of {} cores; {}; {} MiB free in /dev/shm; {}\n{}", name_of(report),
                     report.pid, report.version, report.mpi, report.cores.size(), report.machine_cores,
                     report.networks.empty() ? "no network" : fmt::format("{}", fmt::join(report.networks, ", ")),
                     report.shared_memory_free_bytes >> 20,
                     report.gpus.empty() ? "no GPU" : fmt::format("GPUs {}", fmt::join(report.gpus, ", ")),
                     report.gpu_text);
}

}  // namespace dtorch
