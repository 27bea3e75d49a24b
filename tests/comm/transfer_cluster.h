// N nodes as comm threads of one process, and transfers between them whose sources become ready when the test says so.
#pragma once
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/comm_thread.h"
#include "runtime/comm/in_process.h"
#include "runtime/comm/transfer.h"

namespace dtorch {

// What one device got.
struct Delivery {
  std::vector<std::byte> bytes;  // contiguous
  Shape local_shape;
  std::string error;
};

// Every part that goes to another node goes by itself, in chunks of a few elements.
constexpr DirectParts kTinyChunks{.least_bytes = 1, .chunk_bytes = 16};

// One redistribution over all nodes: inputs by device, results by device.
class Exchange {
 public:
  Exchange(const TensorMeta* from, const TensorMeta* to, const DeviceBinding& binding,
           FoldOrder order = FoldOrder::kMesh, const DirectParts& direct = {});
  // Of a source device; a device without either has failed with an empty text.
  void set_value(int64_t device, NativeTensor value) { values_[device] = std::move(value); }
  void set_error(int64_t device, std::string error) { errors_[device] = std::move(error); }
  const std::map<int64_t, Delivery>& deliveries() const { return deliveries_; }  // after wait()
  const TensorMeta* from() const { return from_; }
  const TensorMeta* to() const { return to_; }

 private:
  friend class Cluster;
  class NodeTransfer;
  const TensorMeta* from_;
  const TensorMeta* to_;
  std::vector<std::shared_ptr<const NodePlan>> plans_;  // by node
  std::map<int64_t, NativeTensor> values_;
  std::map<int64_t, std::string> errors_;
  std::vector<std::atomic<bool>> ready_;       // by node
  std::vector<IntrusivePtr<CommTask>> tasks_;  // by node; submitted and not ready
  std::mutex mutex_;
  std::map<int64_t, Delivery> deliveries_;  // under mutex_
};

class Cluster {
 public:
  Cluster(int64_t num_devices, int32_t num_nodes);
  ~Cluster();
  const DeviceBinding& binding() const { return binding_; }
  // Submits to every node. The exchange must outlive wait().
  void submit(Exchange& exchange, uint64_t number);
  void make_ready(Exchange& exchange, int32_t node);
  // Until all transfers have finished. Throws what ended a comm thread. False: it took longer than a minute.
  bool wait();
  int64_t bytes_sent() const;
  int64_t messages_sent() const;

 private:
  DeviceBinding binding_;
  InProcessFabric fabric_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // under mutex_
  std::vector<std::unique_ptr<CommThread>> threads_;
};

}  // namespace dtorch
