// Main-Controller: owns the node table, the sequencer (I4), the executors of all Graphs and what comes back from the
// nodes. Threads: one for each Graph (EagerGraphExecutor), one for the inbox (every message of a node), one
// for the watchdog.
#pragma once
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/options_table.h"
#include "runtime/base/trace_span.h"
#include "runtime/client/device_memory.h"
#include "runtime/client/link.h"
#include "runtime/client/sight.h"
#include "runtime/client/simulation_source.h"
#include "runtime/comm/endpoint.h"
#include "runtime/controller/recovery_stats.h"

namespace dtorch {

class MainController final : public Runtime,
                             public DeviceMemorySource,
                             public TemplateStatsSource,
                             public SightSource,
                             public SimulationSource {
 public:
  // `control` isn't owned and outlives this object.
  MainController(ControlEndpoint& control, int32_t num_nodes, const RuntimeOptions& options);
  // Ends the job with code 1 if shutdown() wasn't called; doesn't wait for nodes then.
  ~MainController() override;

  // Waits (up to the deadline) for every node's Hello, checks that registries and versions agree, binds devices to
  // nodes and sends the Config. Throws RuntimeFault that names the node and what differs.
  void start();
  // The log of a track of the timeline for a thread of this process; null without --trace.
  SpanLog* add_trace_track(const std::string& name);
  // Everything that is under way fails with `error`, for good; nothing waits for the nodes any more. The first failure
  // wins. Any thread.
  void fail(std::exception_ptr error);
  // That node is gone: with --recover the job goes on without it, else, or when that can't be, it fails with PeerLost.
  // Any thread; doesn't block.
  void node_lost(int32_t node, const std::string& cause);
  RecoveryStats recovery_stats() const;
  std::vector<int32_t> lost_nodes() const;
  // What all nodes are doing, in words; waits for their answers, 2 s at most. Not on a signal handler.
  std::string describe_status();
  // What ended the job early: given to fail(), or said by a node or the watchdog; else null. Any thread.
  std::exception_ptr failure() const;
  // Sends Shutdown to all nodes that aren't lost and waits (at most `grace_s`) for their Goodbye. True when all said
  // it. Once.
  bool shutdown(int exit_code, const std::string& reason, double grace_s);

  const DeviceBinding& binding() const override;
  void attach(std::shared_ptr<GraphLink> link) override;
  void detach(GraphLink& link) override;
  RuntimeStats stats() override;
  TemplateStats template_stats() override;
  void add_device_memory(ClientStats& stats) override;
  void reset_peak_bytes() override;
  std::string memory_report(const TensorNames& names) override;
  void start_profile() override;
  Profile profile() override;
  bool is_simulated() const override;
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
