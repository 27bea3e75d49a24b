// Whether a program can be started on hosts.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "runtime/launch/supervisor.h"

namespace dtorch {

// Why a host can't be used, in a sentence.
struct HostProblem {
  bool is_silent;  // it can't be reached or doesn't answer; otherwise the program doesn't start there
  std::string reason;
};

// The hosts on which the job's probe command fails or doesn't end in time. All hosts at once; at most `limit_s`.
std::map<std::string, HostProblem> unusable_hosts(const SupervisedJob& job, const std::vector<std::string>& hosts,
                                                  double limit_s);
// The launcher's command line for a program on these hosts: one rank more than hosts, or `ranks` here without hosts.
std::vector<std::string> launch_command(const SupervisedJob& job, const std::vector<std::string>& hosts,
                                        const std::vector<std::string>& program);

}  // namespace dtorch
