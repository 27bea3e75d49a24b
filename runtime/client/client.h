// Client: what the user's program gets from dtorch::run. Owns the default Graph. Used from the program's thread.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "runtime/client/device_memory.h"
#include "runtime/client/graph.h"
#include "runtime/client/link.h"

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
  void manual_seed(uint64_t seed) { graph().manual_seed(seed); }
  void flush();
  // Waits until everything recorded so far has finished; throws the first failure that nobody has read.
  void synchronize(Where where = Where::current());
  ClientStats stats();
  // Waits as synchronize() does; every device's and node's peak in stats() counts from then on. For measuring one part
  // of a program. Throws UserError where the runtime counts no memory by device.
  void reset_peak_bytes(Where where = Where::current());
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
