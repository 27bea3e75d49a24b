// What a program may ask about its own cost: Client::memory_report, start_profile, profile.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/logical_graph.h"

namespace dtorch {

// All calls of one operator, on all devices together.
struct ProfileEntry {
  std::string name;
  int64_t calls = 0;  // a device's part of a call counts as one
  double run_s = 0;   // in its kernel
  double wait_s = 0;  // that others waited for its result: of operators that move data
  int64_t bytes = 0;  // of its results
};
// Redistributions of one kind over the same axes: "all-reduce" over "dp". Bytes that devices receive from other
// devices, all of them together.
struct CommunicationEntry {
  std::string kind, axes;
  int64_t calls = 0, bytes = 0;
};
struct Profile {
  double window_s = 0;                            // since start_profile
  std::vector<ProfileEntry> operators;            // the most expensive first
  std::vector<CommunicationEntry> communication;  // the largest first
  // Time that the program's thread, and the controller's threads, were on a core.
  double client_cpu_s = 0, controller_cpu_s = 0;
  std::vector<double> busy_share_per_device;  // of the window, in kernels; by device number
};
// The table as text: calls, total and mean time, share of all time spent, bytes.
std::string profile_table(const Profile& profile);

using TensorNames = std::map<std::pair<GraphId, OperandId>, std::string>;

// A Runtime that can be asked is one of these too. Thread-safe; the calls block until every device has answered, and
// throw RuntimeFault when one doesn't.
class SightSource {
 public:
  virtual ~SightSource() = default;
  virtual std::string memory_report(const TensorNames& names) = 0;
  virtual void start_profile() = 0;
  virtual Profile profile() = 0;
};

}  // namespace dtorch
