// The parts of a checkpoint: every node writes the boxes that its devices hold, each element once: the first holder in
// the order of the mesh writes. Three operators, in this order on every device: open, one write a tensor, finish. A
// write hands its value to the node's io thread and returns, so that devices go on while it is written; the value stays
// as it is because it is held. When a node has written everything, or can't, its io thread answers the read that finish
// has recorded.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint_files.h"
#include "runtime/client/future.h"
#include "runtime/client/tensor.h"

namespace dtorch::checkpoint {

struct Holder {
  int64_t index = 0;   // in the mesh
  int64_t device = 0;  // number
  Box box;
};
// Who writes what of a tensor: boxes that aren't empty, each once.
std::vector<Holder> writers(const Layout& layout, const Shape& shape);

// What every node says of its part. Copies share it; any thread.
class PartAnswers {
 public:
  PartAnswers() = default;
  PartAnswers(TensorFuture rows, std::vector<int64_t> nodes) : rows_(std::move(rows)), nodes_(std::move(nodes)) {}
  // Blocks until every node has written its part; the files' facts by node. Throws RuntimeFault: "node 1: what it
  // says", of the first one that failed, or that the job has failed.
  std::map<int64_t, FileFacts> get() const;

 private:
  TensorFuture rows_;
  std::vector<int64_t> nodes_;  // by row
};

class PartsCall {
 public:
  // Opens the parts in `temporary`, a directory that this process has made, where each node looks for a proof that it
  // is the same one. Doesn't wait, as the others. kind: of the devices.
  PartsCall(const std::filesystem::path& temporary, const std::string& kind, const DeviceBinding& binding,
            const Where& where);
  // Ends the session when the save was given up: what nodes have written so far is closed, and nobody is told. Waits
  // for it.
  ~PartsCall();
  PartsCall(const PartsCall&) = delete;
  PartsCall& operator=(const PartsCall&) = delete;
  // Nothing of the value may be pending.
  void write(const std::string& name, const Tensor& value);
  // After the last write.
  PartAnswers finish();

 private:
  const Where where_;
  const DeviceMesh mesh_;       // all devices
  const uint64_t session_;      // number of the read that finish records
  std::vector<int64_t> nodes_;  // that have devices, in order
  std::vector<int64_t> writes_of_device_;
  bool is_finished_ = false;
};

// Throws RuntimeFault when a node doesn't see what this process writes in `directory`, which exists. Waits for the
// devices.
void prove_shared(const std::filesystem::path& directory, const DeviceBinding& binding, const Where& where);

}  // namespace dtorch::checkpoint
