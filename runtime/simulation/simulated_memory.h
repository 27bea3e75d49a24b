// SimulatedMemory: what devices that compute nothing would hold. Devices that hold parts of the same sizes of
// everything so far are one class and are counted once, so that thousands cost as much as a few: a spec that tells them
// apart splits their class.
//
// What a value costs follows from metadata: its local bytes, unless the operator's result is a view of its input or
// takes over an input's storage (tables in simulated_memory.cc). Inputs at their last use are freed after the results
// were made. What a kernel or a message needs in between isn't counted. Of ragged rows (ops/def/row_exchange.h) as many
// count as there can be, since only data would say how many there are.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/graph/templates.h"

namespace dtorch {

class SimulatedMemory {
 public:
  explicit SimulatedMemory(int64_t num_devices);
  ~SimulatedMemory();
  // A spec that later calls of the Graph use.
  void define(GraphId graph, const OperatorSpec& spec);
  void run(GraphId graph, const LogicalGraph& calls);
  void replay(const Replay& replay);
  // The Graph has ended: its values are gone.
  void forget(GraphId graph);
  // Peaks count from now on.
  void reset_peaks();
  int64_t bytes_in_use(int64_t device) const;
  int64_t peak_bytes(int64_t device) const;
  DeviceMemory memory(int64_t device, size_t num_largest) const;
  // A device's class changes only when their number does.
  size_t num_classes() const { return classes_.size(); }
  uint32_t class_number(int64_t device) const { return class_of_device_[static_cast<size_t>(device)]; }
  int64_t bytes_in_use_of(uint32_t class_number) const;
  int64_t peak_bytes_of(uint32_t class_number) const;

 private:
  struct Spec;
  class Devices;
  Devices& class_of(int64_t device) const { return *classes_[class_of_device_[static_cast<size_t>(device)]]; }
  void run_calls(GraphId graph, const LogicalGraph& calls, std::span<const Operator> operators, bool in_instance);
  // Of a value, between its slot and its name in the instance under way.
  void move(GraphId graph, OperandId slot, OperandId name, bool into_instance);

  std::vector<uint32_t> class_of_device_;
  std::vector<std::unique_ptr<Devices>> classes_;
  std::unordered_map<GraphId, std::vector<std::unique_ptr<Spec>>> specs_;  // by id
  std::unordered_map<GraphId, std::vector<OperandId>> slot_of_name_;       // of the instance under way
};

}  // namespace dtorch
