// Which node is slower than its peers. A thread asks all nodes, several times a second while the job has work under
// way, what their devices are doing, and counts how often each is in a kernel rather than waiting. Nodes run the same
// operators and wait for each other, so that the shares of time that they are in kernels are as the times that they
// take for the same work. Which operators it is in is asked of the ledger only after a first such verdict; a second one
// in a row is told. Costs the nodes a message a question, and nothing where nobody asks.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/controller/inspection.h"
#include "runtime/controller/ledger.h"

namespace dtorch {

class SlowNodes {
 public:
  struct Settings {
    double factor = 2;  // above 1
    std::chrono::nanoseconds every = std::chrono::milliseconds(250);
    int64_t samples = 40;  // of a verdict
  };
  // What it looks at. Called on its thread only.
  struct View {
    std::function<bool()> is_busy;                         // the nodes have work
    std::function<Inspection::Answers()> ask;              // what they do now; may block
    std::function<bool(const Place&)> is_under_way;        // the operator hasn't finished on all nodes
    std::function<std::string(const Place&)> operator_at;  // "[add] called at train.cc:7"
  };
  // `names`: of the nodes, for the report.
  SlowNodes(View view, std::vector<std::string> names, Settings settings);
  // Waits for the question that is under way, if any: a second at most.
  ~SlowNodes();
  SlowNodes(const SlowNodes&) = delete;
  SlowNodes& operator=(const SlowNodes&) = delete;

  // The last verdict, "node 2 (host n3) takes 2.4 times its peers' time, most of it in [matmul] called at a.cc:7"; ""
  // when no node is slow. Any thread.
  std::string describe() const;
  // The same as a line of a status report, "\n  slow: ..."; "" as above. Any thread.
  std::string status_line() const;

 private:
  // Of a node, in samples: each a number from 0 to 1, the part of its devices that are in a kernel.
  struct Share {
    double busy = 0;
    std::map<std::string, double> by_operator;
    bool has_devices = false;
  };
  void loop();
  void sample();
  // "" when no node is slow.
  std::string judge() const;
  void tell(std::string verdict);

  const View view_;
  const std::vector<std::string> names_;
  const Settings settings_;
  std::vector<Share> shares_;  // by node; the thread's, as the next
  int64_t num_samples_ = 0;
  bool suspects_ = false;  // after a first verdict: operators count
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;    // under mutex_
  std::string verdict_;  // under mutex_
  std::thread thread_;
};

// Of a job. Both outlive what it is given to.
SlowNodes::View view_for_slow_nodes(const Ledger& ledger, Inspection& inspection);

}  // namespace dtorch
