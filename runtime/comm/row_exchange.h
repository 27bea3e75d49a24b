// An exchange of ragged rows (ops/def/row_exchange.h) under way on one node: an all-to-all along one axis of a mesh
// whose sizes are data. A device knows how many rows it has for each position of its line along the axis; those that it
// gets stand in the order of the positions that they come from.
//
// Between two nodes there is a first message, of known length, that says how many rows follow for each pair of devices,
// or that a source has failed; then the rows, in as many messages as they fill. Copies between devices of this node are
// direct.
//
//   first := as in transfer.h; body := count:i64 for each pair, in the order of the plan
//   rows  := pair by pair, without gaps, cut into messages of kMostBytes and a last one of what is left
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mesh/layout.h"
#include "ops/def/native_tensor.h"
#include "runtime/comm/comm_thread.h"
#include "runtime/comm/stage_times.h"

namespace dtorch {

// For one node; made once per operator spec and shared by its calls. Immutable: any thread.
struct RowExchangePlan {
  struct Pair {
    int64_t from = 0, to = 0;                         // device numbers
    size_t position_of_from = 0, position_of_to = 0;  // on their line
  };
  struct Line {
    int64_t device = 0;            // of this node
    std::vector<int64_t> devices;  // of its line along the axis, by position
  };
  size_t row_bytes = 0;
  int64_t width = 0;  // elements of a row
  DType dtype = kFloat32;
  std::vector<Line> lines;                               // of this node's devices, in mesh order
  std::vector<int64_t> local_devices;                    // of `lines`
  std::map<int32_t, std::vector<Pair>> sends, receives;  // by the other node; both ends have one order
};
// Rows of `width` elements along an axis of the mesh.
std::shared_ptr<const RowExchangePlan> plan_row_exchange(const DeviceMesh& mesh, int64_t axis, int64_t width,
                                                         DType dtype, const DeviceBinding& binding, int32_t node);

// State machine, with the same duties of a subclass as Transfer's. A source that failed fails every device that its
// node sends to, and nobody hangs. A node without memory for what goes to another one fails the devices there that get
// rows from it; one without memory for what comes fails its own that get some of it, and takes it in pieces to drop it.
class RowExchange : public CommTask {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;  // of a message of rows
  struct Part {
    NativeTensor rows;        // [n, width], those of position 0 first
    NativeTensor counts;      // int64, how many of each position; they add up to n
    std::string error;        // why there are none
    int64_t moved_bytes = 0;  // of a part that is delivered: of the rows that came from other devices
  };
  // epoch and number: as for Transfer.
  RowExchange(std::shared_ptr<const RowExchangePlan> plan, uint32_t epoch, uint64_t number);
  ~RowExchange() override;
  bool poll(Transport& transport) final;
  std::optional<TransferStatus> status() const override;
  bool sleeps() const final;

 protected:
  virtual bool sources_ready() = 0;
  // Asked for once, of every local device of the mesh.
  virtual Part source(int64_t device) = 0;
  virtual void deliver(int64_t device, Part part) = 0;
  // As a Transfer's.
  virtual void failed(int64_t device, const std::string& error) {
    static_cast<void>(device);
    static_cast<void>(error);
  }
  // For rows on their way between nodes. Throws std::bad_alloc; what is asked for then, to drop them, is at most
  // kMostBytes, and a failure of that ends the comm thread. A door for tests.
  virtual std::unique_ptr<std::byte[]> allocate(size_t bytes) {
    return std::make_unique_for_overwrite<std::byte[]>(bytes);
  }
  // For a timeline. Asked before the first message; told of each round that had messages, the counts being round 0 and
  // the rows round 1, before anything is delivered. Rounds overlap.
  virtual bool wants_times() const { return false; }
  virtual void on_round(const StageTimes& times) { static_cast<void>(times); }

 private:
  struct State;
  std::shared_ptr<const RowExchangePlan> plan_;
  uint32_t epoch_;
  uint64_t number_;
  std::unique_ptr<State> state_;
};

}  // namespace dtorch
