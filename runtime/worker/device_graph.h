// DeviceGraphs: what of a template one device can run as device graphs (accelerator.h, docs/gpu.md): which of its calls
// belong together, what they read and leave behind, and what was captured of them. Used by the device's KernelStream,
// which captures and launches (kernel_stream_graph.cc).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/accelerator/accelerator.h"
#include "runtime/graph/templates.h"

namespace dtorch {

struct LocalSpec;

// How a tensor lies.
struct TensorLayout {
  Shape local_shape, strides;
  DType dtype = kFloat32;
  static TensorLayout of(const NativeTensor& value) { return {value.local_shape(), value.strides(), value.dtype()}; }
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// A stretch that was captured. A graph reads and writes where it did at the capture, and values lie elsewhere every
// time. So an input either has to lie where it lay (then the graph may also write its result over it, as a call may),
// or is copied to a place of the graph's; what the graph makes in memory of its own is copied to new memory.
struct CapturedStretch {
  struct Input {
    bool is_present = false;          // else the device has no part of it, or nothing reads it
    bool is_written = false;          // maybe: nobody else may hold it
    NativeTensor place;               // where it is copied to; none: it has to lie where it lay
    const std::byte* data = nullptr;  // its first element, there
    const void* storage = nullptr;    // where the memory begins; null: it has no elements
    int64_t storage_bytes = 0;
    TensorLayout layout = {};
  };
  struct Output {
    bool is_of_input = false;  // a view of an input's memory, else of a result's
    bool is_whole = false;     // the input itself
    size_t source = 0;         // number of the input or result
    int64_t offset = 0;        // elements from the input's first one, or the result's
    TensorLayout layout = {};
  };
  std::vector<Input> inputs;          // parallel to the stretch's
  std::vector<Output> outputs;        // parallel to the stretch's
  std::vector<NativeTensor> results;  // memory of the graph in which outputs lie, each all of its storage
  int64_t num_kernels = 0;
  std::unique_ptr<DeviceGraph> graph;  // goes first
};

// Calls of a template that follow each other, all of which the device can capture.
struct GraphStretch {
  struct Input {
    OperandId name = 0;
    bool is_read = false;             // else it only dies here
    bool has_reader = false;          // a call of an operator, which comes first and is:
    uint32_t call = 0, position = 0;  // of the template; among the call's inputs
    bool dies = false;
    const std::byte* data = nullptr;  // where it lay last
    bool moves = false;               // not always there
  };
  uint32_t first = 0, end = 0;
  std::vector<Input> inputs;
  std::vector<OperandId> outputs;  // names of what is born here and lives at the end
  int32_t seen = 0, captures = 0;
  bool is_refused = false;  // as a whole
  std::unique_ptr<CapturedStretch> captured;
};

class DeviceGraphs {
 public:
  // A stretch of fewer kernels is as fast without a graph.
  static constexpr int32_t kMinKernels = 2;
  // So often a stretch is walked, to see what stays where it is, and captured, until it is left alone.
  static constexpr int32_t kWalksBefore = 2, kMaxCaptures = 4;
  // Calls of a template that the device couldn't capture, until it is left alone: each costs a walk.
  static constexpr size_t kMaxRefused = 16;

  // specs: of the device, by call; varying: of the template. Before a replay; looks for stretches when something has
  // changed.
  void prepare(const TemplateBody& body, const std::vector<const LocalSpec*>& specs, const VaryingScalars& varying);
  // Null: none begins there. Valid until the next prepare().
  GraphStretch* beginning_with(uint32_t call) {
    return call < stretch_at_.size() && stretch_at_[call] != 0 ? &stretches_[stretch_at_[call] - 1] : nullptr;
  }
  // The device can't capture this call: from the next prepare() on it is in no stretch.
  void refuse(uint32_t call);

 private:
  std::vector<GraphStretch> stretches_;
  std::vector<uint32_t> stretch_at_;  // by call: number of the stretch that begins there, from 1
  std::vector<uint32_t> refused_;     // calls
  size_t num_varying_ = 0;
  bool is_current_ = false;
};

}  // namespace dtorch
