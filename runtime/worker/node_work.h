// NodeWork: what a node executes in one epoch: its devices' streams, the Graphs, specs and templates that it knows,
// host data on its way. Decodes, lowers each spec once, numbers transfers and hands whole pieces to the streams. By the
// Sub-Controller's thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/comm/bucket.h"
#include "runtime/graph/snapshot.h"
#include "runtime/worker/kernel_stream.h"

namespace dtorch {

class NodeWork {
 public:
  // Of the devices that `node`, which is configured, has; starts their streams. The backend outlives it. memory: of
  // devices that were here before; others get one.
  NodeWork(std::shared_ptr<NodeContext> node, DeviceBackend& backend, std::map<int64_t, MemoryCounter*>& memory);
  ~NodeWork();  // end(false)

  const std::vector<int64_t>& devices() const { return local_devices_; }  // by local index
  const std::vector<std::unique_ptr<KernelStream>>& streams() const { return streams_; }

  // Of this epoch. All throw what is wrong with the message (DecodeError, InternalError).
  void take_feed(const Feed& feed, SharedBytes bytes);
  void take_piece(const Message& message);
  void take_template(const Message& message);
  void take_replay(const Message& message);
  SnapshotOrder take_snapshot(const Message& message);  // throws DecodeError when it doesn't fit this job
  // Behind the work that was handed out before, and ahead of what follows.
  void run_on_streams(const std::function<void(KernelStream& stream, size_t local_index)>& errand);
  // A Graph's dense number on this node, which it gets now if it has none.
  size_t number_of(GraphId id) { return graph_of(id).number; }

  // Ends the streams: after all work, or without it; then nothing is sent any more. Waits for kernels that run, not
  // for the background's work. Idempotent.
  void end(bool drain);

 private:
  struct GraphState {
    size_t number = 0;                                      // dense on this node
    std::vector<std::unique_ptr<const LoweredSpec>> specs;  // by id, null where a spec was never needed
    std::vector<const LoweredSpec*> untold_specs;           // that streams don't know yet
    std::vector<std::shared_ptr<TemplatePlan>> templates;   // by id
  };
  struct HostData {
    SharedBytes bytes;
    uint32_t uses_left = 0;
  };
  GraphState& graph_of(GraphId id);
  void start(std::unique_ptr<PieceRun> run, GraphState& graph);
  void check_streams(const LogicalGraph& calls) const;  // throws DecodeError
  void add_specs(std::vector<OperatorSpec> new_specs, GraphState& graph);
  void prepare_calls(PieceRun& run, const GraphState& graph);
  void prepare_replay(PieceRun& run);
  void prepare_feed(PieceRun& run, uint64_t number, uint32_t op_index, const LoweredSpec& spec);
  void submit_bucket();
  void prepare_move(PieceRun& run, uint32_t op_index, uint64_t number, const LoweredSpec& spec);

  const std::shared_ptr<NodeContext> node_;
  DeviceBackend& backend_;
  const std::vector<int64_t> local_devices_;
  PieceDecoder decoder_;
  std::unordered_map<GraphId, GraphState> graphs_;
  std::vector<size_t> free_numbers_;  // of closed Graphs
  std::unordered_map<uint64_t, HostData> feeds_;
  std::vector<Bucket::Member> bucket_;                  // transfers that are prepared and not submitted
  std::vector<std::unique_ptr<KernelStream>> streams_;  // they look at `graphs_`
};

}  // namespace dtorch
