// Client: what the user's program gets from dtorch::run. Owns the default Graph. Used from the program's thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/client/capture.h"
#include "runtime/client/device_memory.h"
#include "runtime/client/graph.h"
#include "runtime/client/link.h"
#include "runtime/client/sight.h"

namespace dtorch {

class Client {
 public:
  explicit Client(std::shared_ptr<Runtime> runtime);
  ~Client();  // closes its Graphs; never throws
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int64_t num_devices() const;
  int64_t devices() const { return num_devices(); }
  int32_t num_nodes() const;
  Graph graph() const;  // the default Graph
  Graph new_graph();
  // See capture.h. The function belongs to this thread's current Graph.
  CapturedFunction capture(std::function<void()> function) { return CapturedFunction(std::move(function)); }
  void manual_seed(uint64_t seed) { graph().manual_seed(seed); }
  void flush();
  // Waits until everything recorded so far has finished; throws the first failure that nobody has read.
  void synchronize(Where where = Where::current());
  ClientStats stats();
  // Waits as synchronize() does; every device's and node's peak in stats() counts from then on. For measuring one part
  // of a program. Throws UserError where the runtime counts no memory by device.
  void reset_peak_bytes(Where where = Where::current());
  // What every device holds, in words: bytes, and its largest tensors with layout, operator and source line, and with
  // their names where `named` has them (Module::state_dict()). Waits as synchronize() does.
  std::string memory_report(const std::vector<std::pair<std::string, Tensor>>& named = {},
                            Where where = Where::current());
  // Operators are counted and timed from now on (two looks at a clock for each; without it a branch). Waits as
  // synchronize() does, as profile() does.
  void start_profile(Where where = Where::current());
  // What they cost since start_profile(); UserError without.
  Profile profile(Where where = Where::current());
  std::string describe_nodes();
  // False: conversions of class (a) and (b) of distribution.md are refused, except in backward.
  void set_implicit_redistribution(bool on);
  // True: every call from now on notes what it was made of, for explain(tensor). Costs memory: what leads to each
  // living tensor since the last read. Option --explain.
  void set_explain(bool on);
  // True: after every operator the devices that must hold the same bytes are compared by hash; RuntimeFault at the call
  // names operator, output and device. Every call waits for its result then. Option --check-replicas.
  void set_check_replicas(bool on);
  bool stop_requested() const;
  // Ends all Graphs and waits for their work; throws what failed and wasn't seen by a read. Called by dtorch::run at
  // the end.
  void close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Random state of the current Graph.
void manual_seed(uint64_t seed);
void set_implicit_redistribution(bool on);
void set_explain(bool on);

}  // namespace dtorch
