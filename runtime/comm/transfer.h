// A redistribution under way on one node: the executor of a plan over point-to-point messages, copies between devices
// of this node by direct memory. All pieces between two nodes in one stage travel in one message. Folds go in mesh
// order, in float32 at least for half types, so that bits don't depend on which node holds a device; or, in the fastest
// order, over what each node has folded of its own, which sends less.
//
//   message := magic:u32 poisoned:u32 text_bytes:u64 zero:u64[6] body      (native byte order: nodes are alike)
//   body    := the small parts, packed row-major, each at a multiple of kPartAlignment; at least kMinBody bytes
//   A poisoned message is as long as any other; its body starts with text_bytes bytes that say why.
//   Large parts follow a message that isn't poisoned, each by itself, as it lies in memory, in chunks (part_stream.h).
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mesh/redistribute_plan.h"
#include "ops/def/native_tensor.h"
#include "runtime/comm/comm_thread.h"
#include "runtime/comm/stage_times.h"

namespace dtorch {

class HelperThreads;

// A plan evaluated for one node; made once per operator spec and shared by its calls. Immutable: any thread.
struct NodePlan {
  static constexpr int32_t kHere = -1;
  static constexpr int32_t kInBody = -1;
  // Where the bytes of one source of a piece are: in the tensor of a local device, or in what another node sends.
  struct PartRef {
    int32_t node = kHere;
    Box source_box;            // local: in the coordinates of the source's part
    size_t offset = 0;         // remote: in the body of the message from `node`
    int32_t direct = kInBody;  // or, of a large one, its index in direct_receives of `node`
  };
  // A box that a local device gets: from one source (copy) or folded from several, in order. No source: it is 0.
  struct LocalPiece {
    int64_t device = 0;
    Box box;                        // global coordinates
    Box local_box;                  // in the coordinates of the destination's part
    std::vector<int64_t> sources;   // device numbers; of several that another node has folded, the first
    std::vector<PartRef> parts;     // one a source
    bool folds_here_first = false;  // the parts of this node, which stand together, as one part
    bool folds_chunks = false;      // as chunks of its large parts come: nobody else takes these
  };
  // A box that goes to or comes from another node, at a byte offset of the body of the message between the two or as a
  // large part by itself. Sent once, however many devices of the other node take it.
  struct RemotePart {
    int64_t source = 0, device = 0;  // device numbers; `device` is the first that takes it
    Box box;                         // global coordinates
    Box source_box;                  // in the coordinates of the source's part
    size_t offset = 0;
    // More sources on the same node, with their boxes, to be folded behind the first before it is sent.
    std::vector<std::pair<int64_t, Box>> folded = {};
    // Of large parts: those of one piece, which stand next to each other and have one size, have one number. Their
    // chunks take turns, so that they can be folded as they come.
    size_t group = 0;
  };
  struct Destination {
    int64_t device = 0;
    Shape local_shape;
    size_t first_piece = 0, num_pieces = 0;  // in `pieces`
    size_t same_as = 0;                      // the first destination that gets the same: they share the value
  };
  struct NodeStage {
    Stage stage;
    std::vector<Destination> destinations;             // local devices, in mesh order
    std::vector<LocalPiece> pieces;                    // for local destination devices
    std::map<int32_t, std::vector<RemotePart>> sends;  // in the message, by node
    std::map<int32_t, std::vector<RemotePart>> receives;
    std::map<int32_t, size_t> send_bytes, receive_bytes;                       // of the bodies
    std::map<int32_t, std::vector<RemotePart>> direct_sends, direct_receives;  // large ones; by some of these nodes
    // By destination: where its result lies in the one result that the next stage makes here, in that one's
    // coordinates. Empty: results have memory of their own.
    std::vector<Box> places_in_next;
  };
  std::vector<NodeStage> stages;
  std::vector<int64_t> local_sources, local_destinations;  // device numbers
  int32_t node = 0;
  size_t chunk_bytes = 0;
};
// All nodes alike.
struct DirectParts {
  size_t least_bytes = 128 << 10;  // of a part that doesn't go into the message
  size_t chunk_bytes = 256 << 10;  // a multiple of 16; small enough for a core's cache
};
// kByNode: what several devices of a node have of one piece is folded there first, so that bits depend on the nodes.
// All nodes alike. Sums of half types keep the mesh's order: on their way they would be rounded once more.
enum class FoldOrder { kMesh, kByNode };
// The plan has at least one stage (its kind isn't kNothing).
std::shared_ptr<const NodePlan> lower_plan(const RedistributePlan& plan, const DeviceBinding& binding, int32_t node,
                                           FoldOrder order = FoldOrder::kMesh, const DirectParts& direct = {});

// Folds `parts` (packed, `count` elements of `dtype` each) in order into `result`, which may be one of them; parts may
// be null for the identity. kAvg folds as kSum. The quotient by `divisor` is rounded once, with the sum, for half
// types; integers truncate.
void fold_parts(std::span<const std::byte* const> parts, int64_t count, DType dtype, ReduceOp reduce, int64_t divisor,
                std::byte* result);
// The same for elements [begin, end) alone; pointers are of element 0.
void fold_range(std::span<const std::byte* const> parts, int64_t begin, int64_t end, DType dtype, ReduceOp reduce,
                int64_t divisor, std::byte* result);
// Fills packed memory with the reduce operator's identity (0, -inf or lowest, inf or max).
void fill_identity(std::byte* packed, int64_t count, DType dtype, ReduceOp reduce);

// The tag of a transfer's messages in one stage: stages of transfers that can be under way at once differ.
uint32_t transfer_tag(uint32_t epoch, uint64_t number, size_t stage);

// State machine. A subclass says when the local sources are there and takes the results. All virtual functions are
// called by the comm thread; whoever makes sources_ready() true calls CommThread::wake() afterwards.
class Transfer : public CommTask {
 public:
  // number: this transfer's number in the controller's total order; epoch: of the message tags.
  Transfer(std::shared_ptr<const NodePlan> plan, uint32_t epoch, uint64_t number);
  ~Transfer() override;
  bool poll(Transport& transport) final;
  // Without the place, and without the devices that sources are awaited from.
  std::optional<TransferStatus> status() const override;
  bool sleeps() const final;

 protected:
  // True when every local source tensor has been computed (or has failed).
  virtual bool sources_ready() = 0;
  // The value of a local source device, asked for once; empty when it failed (then source_error says why).
  virtual NativeTensor source(int64_t device) = 0;
  virtual std::string source_error(int64_t device) = 0;
  // Called once for each local destination device: a value, or an error (poison: a source of one of its pieces had
  // failed; the message of the other nodes carried the flag and its text). A poisoned node still joins, so that nobody
  // hangs. The value may share its storage with a source.
  virtual void deliver(int64_t device, NativeTensor value, const std::string& error) = 0;
  // A failure that begins here (memory that is short, a source without a value), told once, before it is delivered or
  // goes to other nodes as poison. What a source failed of has been told by whoever computed it.
  virtual void failed(int64_t device, const std::string& error) {
    static_cast<void>(device);
    static_cast<void>(error);
  }
  // Of a result whose storage is new, or that several local destinations get as one storage and that nobody else has:
  // it counts as this device's, the first of those that get it. Before it is delivered.
  virtual void charge(int64_t device, const NativeTensor& value) {
    static_cast<void>(device);
    static_cast<void>(value);
  }
  // That large folds and copies may be shared with; null: nobody.
  virtual HelperThreads* helpers() { return nullptr; }
  // For a timeline. Asked before each stage; told after it.
  virtual bool wants_times() const { return false; }
  virtual void on_stage(const StageTimes& times) { static_cast<void>(times); }

 private:
  struct State;
  std::shared_ptr<const NodePlan> plan_;
  uint32_t epoch_;
  uint64_t number_;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
