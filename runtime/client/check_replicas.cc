// Each device hashes its part of an output (operator replica_hash: a tensor with one number a device, laid out as the
// mesh is); the client reads the numbers and compares along the axes on which the output is Replicate.
#include "runtime/client/check_replicas.h"

#include <string_view>
#include <utility>

#include "runtime/client/gradient.h"
#include "runtime/client/named_operator.h"
#include "runtime/client/record.h"
#include "runtime/client/thread_state.h"

namespace dtorch {
namespace {

// Reads and hashes are calls too.
class CheckingScope {
 public:
  CheckingScope() : before_(std::exchange(thread_state.checks_replicas, true)) {}
  ~CheckingScope() { thread_state.checks_replicas = before_; }
  CheckingScope(const CheckingScope&) = delete;
  CheckingScope& operator=(const CheckingScope&) = delete;

 private:
  const bool before_;
};

bool has_replicas(const Layout& layout) {
  for (int64_t axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis).is_replicate() && layout.mesh().shape()[axis] > 1) return true;
  }
  return false;
}

void check_output(const OperatorDef& op, size_t number, const Tensor& output, const SourceLine& line,
                  const Where& where) {
  static constinit NamedOperator hash_operator("replica_hash");
  const Layout& layout = output.layout();
  const DeviceMesh& mesh = layout.mesh();
  const Tensor hashes = record(hash_operator.get(), NoAttrs{}, {&output}, where);
  const HostTensor host = hashes.to_host(where);
  for (int64_t index = 0; index < mesh.num_devices(); ++index) {
    Shape first = mesh.coordinate_of_index(index);
    for (int64_t axis = 0; axis < mesh.num_axes(); ++axis) {
      if (layout.placement(axis).is_replicate()) first[axis] = 0;
    }
    const int64_t first_index = mesh.index_of_coordinate(first);
    if (host.element<int64_t>(index) == host.element<int64_t>(first_index)) continue;
    const auto device = [&](int64_t i) { return std::to_string(mesh.devices()[static_cast<size_t>(i)]); };
    throw RuntimeFault(std::string("[") + op.called() + "] replicas differ: output " + std::to_string(number) + ", " +
                       output.meta().str() + ", is another one on device " + device(index) + " than on device " +
                       device(first_index) + "; called at " + line.str());
  }
}

}  // namespace

void check_replicas(const OperatorDef& op, std::span<const Tensor> outputs, const SourceLine& line,
                    const Where& where) {
  if (thread_state.checks_replicas) return;
  const CheckingScope checking;
  const NoGrad no_grad;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (has_replicas(outputs[i].layout())) check_output(op, i, outputs[i], line, where);
  }
}

}  // namespace dtorch
