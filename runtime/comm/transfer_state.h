// What a transfer under way holds on its node. Comm thread only. transfer.cc has its phases and messages,
// transfer_build.cc what its stages make of them. Inside runtime/comm only.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/part_stream.h"
#include "runtime/comm/transfer.h"
#include "runtime/comm/transfer_message.h"

namespace dtorch {

struct Transfer::State {
  enum class Phase { kStart, kWaitForSources, kReceive, kParts, kSend };
  struct Outgoing {
    int32_t node = 0;
    TransferMessage message;
    Transport::Request request = 0;
  };
  struct Incoming {
    TransferMessage message;
    Transport::Request request = 0;
    bool arrived = false;
    std::string error;
  };
  // Of a destination with pieces of its own: a value, or an error.
  struct Result {
    NativeTensor value;
    std::string error;
    bool is_source = false;  // passed through
  };
  using Memory = std::unique_ptr<std::byte[]>;
  using Pieces = std::span<const NodePlan::LocalPiece>;

  explicit State(const NodePlan& node_plan) : plan(node_plan) {}

  const NodePlan::NodeStage& stage() const { return plan.stages[stage_index]; }
  bool is_last_stage() const { return stage_index + 1 == plan.stages.size(); }
  void post_receives(Transport& transport, uint32_t tag);
  void post_sends(Transport& transport, uint32_t tag);
  void post_parts(int32_t node, uint32_t tag, std::span<const NodePlan::RemotePart> parts);
  bool receives_arrived(Transport& transport);
  bool advance_sends(Transport& transport);  // true when all has been taken
  void begin_times();
  void end_times(Transfer& transfer);
  const std::string& error_of(std::span<const NodePlan::RemotePart> parts) const;
  const std::string& error_of(const NodePlan::Destination& destination) const;
  const std::string& error_of_source(int64_t device) const {
    static const std::string none;
    const auto at = errors.find(device);
    return at == errors.end() ? none : at->second;
  }
  size_t bytes_of(std::span<const NodePlan::RemotePart> parts) const;
  ChunkWalk walk_of(std::span<const NodePlan::RemotePart> parts) const;

  // transfer_build.cc. When the messages are there:
  void begin_results(Transfer& transfer);
  void receive_parts(uint32_t tag);
  bool advance_parts(Transport& transport);  // true when all have come
  void end_results(Transfer& transfer);
  void charge_shared(Transfer& transfer);
  Pieces pieces_of(const NodePlan::Destination& destination) const {
    return std::span(stage().pieces).subspan(destination.first_piece, destination.num_pieces);
  }
  bool passes_source(const NodePlan::Destination& destination) const;
  NativeTensor make_result(Transfer& transfer, size_t destination);
  bool begin_chunk_fold(const NodePlan::LocalPiece& piece, const NativeTensor& result);  // false: not in chunks
  bool fold_chunk();  // false: its parts aren't all there
  void build(HelperThreads* helpers, Pieces pieces, const NativeTensor& result) const;
  void fold_piece(HelperThreads* helpers, const NodePlan::LocalPiece& piece, const NativeTensor& result) const;
  void copy_piece(HelperThreads* helpers, const NodePlan::LocalPiece& piece, const NativeTensor& result) const;
  const std::byte* received(const NodePlan::PartRef& part) const;

  const NodePlan& plan;
  Phase phase = Phase::kStart;
  size_t stage_index = 0;
  bool receives_posted = false;
  // Of the current stage's local source devices: a value, or an error.
  std::map<int64_t, NativeTensor> values;
  std::map<int64_t, std::string> errors;
  std::map<int32_t, Incoming> incoming;  // by node
  std::vector<Outgoing> outgoing;        // of all stages
  std::vector<PartSender> part_senders;  // of all stages
  std::optional<StageTimes> times;       // of the current stage, when somebody wants them

  // Of the current stage, once its messages are there:
  std::vector<Result> results;                // by destination; empty where another has the same
  NativeTensor next_result;                   // whose views the results are; or the next stage's when that one begins
  std::map<int32_t, PartReceiver> receivers;  // by node
  // Large parts without a place in a result and without a fold in chunks: whole, by node and number.
  std::map<std::pair<int32_t, int32_t>, std::shared_ptr<std::byte[]>> whole_parts;
  // In the order of the pieces, which is that in which their parts come.
  struct ChunkFold {
    const NodePlan::LocalPiece* piece = nullptr;
    std::byte* result = nullptr;
    std::vector<const std::byte*> parts;  // first elements; null: comes in chunks
    size_t bytes = 0;
  };
  std::vector<ChunkFold> chunk_folds;
  size_t fold_at = 0;       // in chunk_folds
  size_t folded_bytes = 0;  // of that one
};

}  // namespace dtorch
