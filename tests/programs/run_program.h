// Runs a program of build/bin, alone or under mpirun, with a time limit; ends its whole process group, by id, when the
// limit passes.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dtorch::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when it was killed
  bool timed_out = false;
  double seconds = 0;
  std::string output;  // stdout
  std::string errors;  // stderr
};

struct ProgramOptions {
  int np = 0;  // ranks of mpirun; 0: without mpirun
  double timeout_s = 120;
  std::vector<std::string> mpirun = {};   // more options of mpirun
  std::vector<std::string> wrapper = {};  // before the program, on every rank: {"sh", "-c", "...; exec \"$@\"", "sh"}
  int64_t file_size_limit_kib = 0;  // files may not grow beyond it (writes fail as on a full disk); without mpirun only
  // Called again and again (about every 10 ms) while the program runs, with what it has printed so far and the id of
  // the started process.
  std::function<void(const std::string& output, pid_t started)> watch = {};
};

// command[0] is a name in build/bin.
ProgramResult run_program(const std::vector<std::string>& command, const ProgramOptions& options = {});
// Direct and indirect children of a process whose command line contains `word`.
std::vector<pid_t> descendants(pid_t parent, const std::string& word);
bool process_exists(pid_t pid);
// A new empty folder below the system's temporary one.
std::string scratch_folder(const std::string& name);
std::string source_path(const std::string& relative);  // in the source tree
constexpr bool runs_under_sanitizer() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace dtorch::test
