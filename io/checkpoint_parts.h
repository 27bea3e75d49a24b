// The parts of a checkpoint: every node writes the boxes that its devices hold, each element once: the first holder in
// the order of the mesh writes. Three operators, in this order on every device: open, one write a tensor, finish. A
// write hands its value to the node's io thread and returns, so that devices go on while it is written; the value stays
// as it is because it is held. When a node has finished, its part-<node>.json in the directory says how it went.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint_files.h"
#include "io/hdf5_file.h"
#include "runtime/client/tensor.h"

namespace dtorch::checkpoint {

struct Holder {
  int64_t index = 0;   // in the mesh
  int64_t device = 0;  // number
  Box box;
};
// Who writes what of a tensor: boxes that aren't empty, each once.
std::vector<Holder> writers(const Layout& layout, const Shape& shape);
// The elements of a box of `shape` in `file_shape`, which merges neighbouring dims; nullopt when they aren't regular
// enough for one Slab.
std::optional<io::Slab> slab_of(const Shape& shape, const Box& box, const Shape& file_shape);

class PartsCall {
 public:
  // Proves that every node sees `temporary`, a directory that this process has made, and opens the parts. Waits for the
  // devices. kind: of the devices.
  PartsCall(const std::filesystem::path& temporary, const std::string& kind, const DeviceBinding& binding,
            const Where& where);
  // Nothing of the value may be pending. Doesn't wait.
  void write(const std::string& name, const Tensor& value);
  // After the last write. Doesn't wait.
  void finish();

 private:
  const Where where_;
  const DeviceMesh mesh_;  // all devices
  uint64_t session_ = 0;
  std::vector<int64_t> writes_of_device_;
};

// Waits until every node has finished. Throws RuntimeFault with what the first one that failed says, or that one has
// made no progress for 5 minutes. Any thread.
std::vector<FileFacts> wait_for_parts(const std::filesystem::path& temporary, int64_t num_nodes);

}  // namespace dtorch::checkpoint
