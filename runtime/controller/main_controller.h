// Main-Controller: owns the node table, the sequencer (I4), the executors of all Graphs and what comes back from the
// nodes. Threads: one for each Graph (EagerGraphExecutor), one for the inbox (every message of a node, and the
// watchdog).
#pragma once
#include <exception>
#include <memory>
#include <string>

#include "runtime/base/options_table.h"
#include "runtime/client/device_memory.h"
#include "runtime/client/link.h"
#include "runtime/comm/endpoint.h"

namespace dtorch {

class MainController final : public Runtime, public DeviceMemorySource {
 public:
  // `control` isn't owned and outlives this object.
  MainController(ControlEndpoint& control, int32_t num_nodes, const RuntimeOptions& options);
  // Ends the job with code 1 if shutdown() wasn't called; doesn't wait for nodes then.
  ~MainController() override;

  // Waits (up to the deadline) for every node's Hello, checks that registries and versions agree, binds devices to
  // nodes and sends the Config. Throws RuntimeFault that names the node and what differs.
  void start();
  // Everything that is under way fails with `error`, for good; nothing waits for the nodes any more. The first failure
  // wins. Any thread.
  void fail(std::exception_ptr error);
  // What ended the job early: given to fail(), or said by a node or the watchdog; else null. Any thread.
  std::exception_ptr failure() const;
  // Sends Shutdown to all nodes and waits (at most `grace_s`) for their Goodbye. True when all said it. Once.
  bool shutdown(int exit_code, const std::string& reason, double grace_s);

  const DeviceBinding& binding() const override;
  void attach(std::shared_ptr<GraphLink> link) override;
  void detach(GraphLink& link) override;
  RuntimeStats stats() override;
  void add_device_memory(ClientStats& stats) override;
  void reset_peak_bytes() override;
  bool stop_requested() const override;
  void request_stop();  // async-signal-safe
  // The program has asked stop_requested() since then, so it will end by itself.
  bool stop_seen() const;
  std::string describe_nodes() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
