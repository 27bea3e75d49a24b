// Tensor's reads: to_host and its relatives, item.
#include "runtime/client/gradient.h"
#include "runtime/client/graph_core.h"
#include "runtime/client/local_read.h"
#include "runtime/client/named_operator.h"
#include "runtime/client/placement_error.h"
#include "runtime/client/record.h"
#include "runtime/client/redistribute_call.h"
#include "runtime/client/thread_state.h"

namespace dtorch {
namespace {

// Records the read of `region`; device: whose part is read, -1: the value, from whoever holds it.
TensorFuture record_read(const Tensor& tensor, const Box& region, int64_t device, const Where& where) {
  static constinit NamedOperator read_operator("read");
  const OperatorDef& op = read_operator.get();
  GraphCore& graph = tensor.value()->graph();
  auto payload = make_intrusive<RecordPayload>();
  payload->read = make_intrusive<ReadState>(tensor.shape(), tensor.dtype(), region);
  TensorFuture future(payload->read, graph.client().callbacks);
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(next_host_data_number())), Scalar::of_int(device)};
  const Tensor* input = &tensor;
  payload->add_ref();  // the call's
  record_call({.op = op, .attributes = {}, .inputs = {&input, 1}, .scalars = scalars, .payload = payload.get()}, {},
              where);
  if (!thread_state.checks_replicas) graph.count_read();  // explain() goes back to the program's own reads
  return future;
}

void check_readable(const Tensor& tensor) {
  tensor.meta();
  GraphCore& graph = tensor.value()->graph();
  graph.check_usable();
  graph.throw_callback_error();
}

}  // namespace

TensorFuture Tensor::to_host_async(Where where) const {
  check_readable(*this);
  NoGrad no_grad;
  if (layout().has_partial() && conversion_policy(value()->graph()) == ConversionPolicy::kNone) {
    MatchFailure failure;
    while (!layout().placement(++failure.axis).is_partial()) continue;
    failure.reason = "reading a pending value reduces it, and implicit redistribution is off";
    failure.legal_rows = {"(Replicate())", "(Shard(d))"};
    failure.fix = {{0, layout().without_partial()}};
    throw PlacementError("to_host", {{shape(), dtype(), mesh(), layout()}}, std::move(failure), source_line(where));
  }
  const Tensor value = redistribute_call(*this, layout().without_partial(), where);
  return record_read(value, whole(shape()), -1, where);
}

HostTensor Tensor::to_host(Where where) const { return to_host_async(where).get(); }

TensorFuture read_local_async(const Tensor& tensor, int64_t device, Where where) {
  check_readable(tensor);
  if (tensor.mesh().index_of(device) < 0) {
    throw MeshError("[to_host_local] device " + std::to_string(device) + " isn't in " + tensor.mesh().str() +
                    called_at(source_line(where)));
  }
  return record_read(tensor.detach(), tensor.layout().box_of(tensor.shape(), device), device, where);
}

HostTensor Tensor::to_host_local(int64_t device, Where where) const {
  return read_local_async(*this, device, where).get();
}

HostTensor Tensor::item_host(Where where) const {
  if (numel() != 1) {
    throw ShapeError("[item] needs a tensor with one element, this one has " + std::to_string(numel()) + ", shape " +
                     shape().str() + "; to_host() reads all of them\n  called at " + source_line(where).str());
  }
  return to_host(where);
}

}  // namespace dtorch
