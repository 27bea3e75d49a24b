// The file that says how a job ended (--result), for whoever started it: mpirun's own exit code isn't reliable when a
// rank was lost. One JSON object: "code", "status" (done, refused, failed, preempted, peer lost, deadline passed),
// "reason", "host". No file: the job ended before it could say anything.
#pragma once
#include <exception>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/controller/peer_lost.h"

namespace dtorch {

// Exit codes of a job.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kPreempted = 77;  // asked to end, has saved; may be started again
inline constexpr int kPeerLost = 78;
inline constexpr int kDeadlinePassed = 79;

struct JobResult {
  int code = kDone;
  std::string status = "done";
  std::string reason;  // of a failure: its first cause
};

// `status` follows from the program's exit code.
JobResult result_of_code(int code);
// Of what ended the job: UserErrors are "refused" (trying again gives the same), everything else but a passed deadline
// and a PeerLost "failed".
JobResult result_of(const std::exception_ptr& failure);

// Takes the first `--result FILE` or `--result=FILE` before a "--" out of these words and returns FILE; "" when there
// is none. For command lines of others, and for those that don't parse.
std::string take_result_option(std::vector<std::string>& words);

// Removes what an earlier job left at `path`; call it before anything can end the job. Empty path: nothing is done.
// Throws UserError when the place can't be written, or is something else than a file (/dev/null, a folder).
void clear_result(const std::string& path);
// Replaces the file in one step; what isn't a file is left as it is. Problems are logged: the result must not change
// because of them.
void write_result(const std::string& path, const JobResult& result);

}  // namespace dtorch
