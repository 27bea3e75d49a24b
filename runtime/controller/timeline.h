// Timeline: one job's --trace, from the start to the file. Rank 0's threads note their spans in logs of their own,
// nodes keep theirs until they are asked.
#pragma once
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/controller/timeline_file.h"

namespace dtorch {

class Timeline {
 public:
  // Throws UserError when the file can't be written.
  Timeline(std::string path, int32_t num_nodes);
  TraceBook& book() { return book_; }
  // A new track; the log is the calling thread's or that of the thread it is for, and lives as long as this. Any
  // thread.
  SpanLog& add_track(const std::string& name);
  // Nodes note events from now on. Blocks.
  void start(Inspection& inspection);
  // Asks the nodes for what they have and writes the file; throws RuntimeFault when that fails. Waits for each node,
  // `patience` at most.
  void finish(Inspection& inspection, const std::vector<std::string>& node_names, std::chrono::nanoseconds patience);

 private:
  const std::string path_;
  std::ofstream file_;
  TraceBook book_;
  ClockOffsets clocks_;
  std::mutex mutex_;
  std::deque<HostTrack> tracks_;  // under mutex_
};

}  // namespace dtorch
