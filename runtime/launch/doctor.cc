#include "runtime/launch/doctor.h"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/launcher.h"
#include "runtime/comm/mpi_error.h"
#include "runtime/gpu/gpu_devices.h"
#include "runtime/launch/rank_report.h"
#include "runtime/launch/result_file.h"

namespace dtorch {

namespace {

namespace fs = std::filesystem;

constexpr auto kLimit = std::chrono::seconds(50);

// Ends the process when the ranks don't come together in time: MPI itself waits for ever.
class TimeLimit {
 public:
  TimeLimit() {
    thread_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kLimit, [this] { return done_; })) return;
      if (is_first_rank())
        std::cerr << "error: not every rank answers: one didn't start, or its host can't be reached by MPI\n"
                  << std::flush;
      ::_exit(kFailed);  // lint: allow
    });
  }
  ~TimeLimit() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // under mutex_
  std::thread thread_;
};

// Writes and removes a file; why that fails, or "".
std::string problem_of_writing(const fs::path& path) {
  std::ofstream file(path);
  file << "written by the check of a job\n";
  file.close();
  if (!file) return "cannot write in '" + path.parent_path().string() + "': " + std::strerror(errno);
  if (::unlink(path.c_str()) != 0) return "cannot remove '" + path.string() + "': " + std::strerror(errno);
  return "";
}

// What a rank that isn't the first thinks of the folder with the mark in it.
std::string problem_of_mark(const fs::path& mark, int rank) {
  const std::string folder = mark.parent_path().string();
  std::error_code error;
  const bool found = fs::exists(mark, error);
  if (error) return "cannot look into '" + folder + "': " + error.message();
  if (!found) return "doesn't see what rank 0 wrote in '" + folder + "': the ranks need a folder that they share";
  return problem_of_writing(mark.string() + "." + std::to_string(rank));
}

// A file's name that no other check uses, made by rank 0 for all.
std::string name_of_mark(bool alone) {
  std::array<char, 512> name = {};
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  std::snprintf(name.data(), name.size(), ".dtorch_check.%s.%ld", host, static_cast<long>(::getpid()));
  if (!alone) DTORCH_MPI(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD));
  return name.data();
}

// Collective: rank 0 leaves a file in the folder, which the others must find there.
std::string problem_of_folder(const fs::path& folder, int rank, bool alone) {
  const fs::path mark = folder / name_of_mark(alone);
  std::error_code unimportant;  // the mark stays then
  std::string problem;
  if (rank == 0) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) problem = "cannot make '" + folder.string() + "': " + error.message();
    if (problem.empty() && !std::ofstream(mark).put('\n').flush())
      problem = "cannot write in '" + folder.string() + "': " + std::strerror(errno);
  }
  if (alone) {
    if (problem.empty()) fs::remove(mark, unimportant);
    return problem;
  }
  int marked = problem.empty() ? 1 : 0;
  DTORCH_MPI(MPI_Bcast(&marked, 1, MPI_INT, 0, MPI_COMM_WORLD));
  if (rank > 0 && marked != 0) problem = problem_of_mark(mark, rank);
  DTORCH_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (rank == 0 && marked != 0) fs::remove(mark, unimportant);
  return problem;
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  DTORCH_MPI(MPI_Get_library_version(text, &length));
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find(','));
}

// Collective; rank 0 gets all texts, the others nothing.
std::vector<std::string> gather(const std::string& text, int rank, int num_ranks) {
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(static_cast<size_t>(num_ranks)), offsets(static_cast<size_t>(num_ranks));
  DTORCH_MPI(MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD));
  int total = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    offsets[r] = total;
    if (rank == 0) total += lengths[r];
  }
  std::string all(static_cast<size_t>(total), '\0');
  DTORCH_MPI(MPI_Gatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), offsets.data(), MPI_CHAR, 0,
                         MPI_COMM_WORLD));
  std::vector<std::string> texts;
  for (size_t r = 0; rank == 0 && r < lengths.size(); ++r)
    texts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(lengths[r])));
  return texts;
}

int judge(const std::vector<RankReport>& reports, const RuntimeOptions& options) {
  for (const RankReport& report : reports) std::cout << describe(report);
  const std::vector<std::string> problems = find_problems(
      reports,
      {.asked_ranks = ranks_asked_for(), .devices = options.devices, .threads_per_device = options.threads_per_device});
  for (const std::string& problem : problems) std::cout << "problem: " << problem << "\n";
  if (problems.empty()) std::cout << "no problem found\n";
  std::cout << std::flush;
  return problems.empty() ? kDone : kFailed;
}

int check_ranks(const RuntimeOptions& options, const std::string& folder) {
  const TimeLimit limit;
  check_launcher();
  DTORCH_MPI(MPI_Init(nullptr, nullptr));
  int rank = 0, num_ranks = 1;
  DTORCH_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  DTORCH_MPI(MPI_Comm_size(MPI_COMM_WORLD, &num_ranks));
  RankReport report = look_here();
  report.rank = rank;
  report.mpi = mpi_version();
  if (!folder.empty()) report.folder_problem = problem_of_folder(folder, rank, num_ranks == 1);
  std::vector<RankReport> reports;
  for (const std::string& text : gather(to_text(report), rank, num_ranks)) reports.push_back(from_text(text));
  int code = rank == 0 && is_first_rank() ? judge(reports, options) : kFailed;
  DTORCH_MPI(MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD));
  DTORCH_MPI(MPI_Finalize());
  return code;
}

}  // namespace

int check_job(const RuntimeOptions& options, const std::string& folder) {
  if (launched_with_mpi()) return check_ranks(options, folder);
  RankReport report = look_here();
  report.mpi = "without MPI";
  if (!folder.empty()) report.folder_problem = problem_of_folder(folder, 0, true);
  return judge({report}, options);
}

std::string describe_gpus_here() {
  const GpuList list = list_visible_gpus();
  if (!list.gpus.empty()) return describe_gpus(list.gpus);
  return "no GPU: " + (list.problem.empty() ? "CUDA_VISIBLE_DEVICES shows none" : list.problem) + "\n";
}

}  // namespace dtorch
