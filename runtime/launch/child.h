// One program that this process starts and watches: its own process group, its output where this process's goes.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtorch {

using ChildEnvironment = std::vector<std::pair<std::string, std::string>>;

class Child {
 public:
  // Starts command[0], looked for on the PATH, with `environment` added. `log_path`, unless empty, takes both outputs.
  // All signals are as in a new process. It gets SIGTERM when the thread that makes it ends, however that happens.
  // Throws RuntimeFault when it can't be started.
  Child(const std::vector<std::string>& command, const ChildEnvironment& environment, const std::string& log_path = "");
  // Ends the group at once if it hasn't ended.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The exit code (128 + signal of one that was killed, -1 when somebody else was told) once it has ended. Doesn't
  // block.
  std::optional<int> ended();
  // To the program itself.
  void signal(int number) const;
  // Ends the whole group at once and waits for the program.
  int end_group();

 private:
  pid_t pid_ = 0;
  std::optional<int> code_;
};

}  // namespace dtorch
