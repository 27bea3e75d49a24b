// KernelStream's stretches of templates as device graphs (device_graph.h, docs/gpu.md): when one is captured, when it
// can be launched, and where its values come from and go to. Whatever doesn't fit is walked, and counted.
#include <algorithm>

#include "runtime/base/log.h"
#include "runtime/worker/kernel_stream_call.h"
#include "runtime/worker/native/native_metadata.h"

namespace dtorch {
namespace {

int64_t elements_between(const std::byte* from, const std::byte* to, DType dtype) {
  return (to - from) / size_of(dtype);
}

// Elements from the first to behind the last one.
int64_t extent(const TensorLayout& layout) {
  int64_t last = 0;
  for (int64_t dim = 0; dim < layout.local_shape.ndim(); ++dim)
    last += (layout.local_shape[dim] - 1) * layout.strides[dim];
  return last + 1;
}

// All of a value's storage.
NativeTensor storage_as_tensor(const NativeTensor& value) {
  const auto* begin = static_cast<const std::byte*>(storage_of(value));
  return strided_view(value, {value.storage_bytes() / size_of(value.dtype())}, {1},
                      -elements_between(begin, value.data(), value.dtype()));
}

}  // namespace

// While calls are captured: none of them runs, so none of them can fail.
struct KernelStream::Capture {
  std::optional<uint32_t> refused;  // the first call that the device couldn't capture, by op_index
};

DeviceGraphs* KernelStream::graphs_of(const TemplateBody& body, TemplatePlan::Device& device) {
  if (!queue_ || !node_->config.device_graphs) return nullptr;
  if (!may_take_over() || observer_.observes()) {
    walk_instead(may_take_over() ? GraphFallback::kObserved : GraphFallback::kComputeStreams);
    return nullptr;
  }
  if (!device.graphs) device.graphs = std::make_unique<DeviceGraphs>();
  device.graphs->prepare(body, device.specs, device.varying);
  return device.graphs.get();
}

bool KernelStream::walk_instead(GraphFallback reason) {
  statistics_.graphs.fallbacks[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  return false;
}

PoisonPtr KernelStream::refuse_capture(const Call& call, const std::string& why) {
  log_debug("device {}: call {} isn't captured: {}", device_, call.op_index, why);
  if (!capture_->refused) capture_->refused = call.op_index;
  return make_intrusive<Poison>(why, device_, call.run.piece.sequence, call.number());
}

bool KernelStream::run_as_graph(Call& call) {
  DeviceGraphs& graphs = *call.list.graphs;
  GraphStretch* const stretch = graphs.beginning_with(call.list.first_call + call.op_index);
  if (stretch == nullptr || aborting()) return false;
  const uint32_t num_calls = stretch->end - stretch->first;
  if (call.op_index + num_calls > call.list.operators.size()) return walk_instead(GraphFallback::kInParts);
  position_.at(call.number());
  if (const auto reason = settle_graph_inputs(call, *stretch)) return walk_instead(*reason);
  if (!stretch->captured) {
    if (stretch->is_refused) return walk_instead(GraphFallback::kRefused);
    if (stretch->captures >= DeviceGraphs::kMaxCaptures) return walk_instead(GraphFallback::kMoved);
    if (stretch->seen++ < DeviceGraphs::kWalksBefore) return false;
    ++stretch->captures;
    if (!capture_stretch(call, *stretch, graphs)) return walk_instead(GraphFallback::kRefused);
    statistics_.graphs.captured.fetch_add(1, std::memory_order_relaxed);
  }
  if (const auto reason = misfit(call, *stretch)) {
    stretch->captured.reset();
    return walk_instead(*reason);
  }
  if (const auto reason = launch_graph(call, *stretch)) return walk_instead(*reason);
  call.op_index += num_calls;
  return true;
}

// Takes what has arrived, and notes where inputs lie.
std::optional<GraphFallback> KernelStream::settle_graph_inputs(const Call& call, GraphStretch& stretch) {
  for (GraphStretch::Input& input : stretch.inputs) {
    if (!input.is_read) continue;
    Blob& blob = call.blob(input.name);
    if (blob.pending) {
      if (!input.has_reader) return GraphFallback::kLayout;
      Call reader = call;
      reader.go_to(call.op_index + (input.call - stretch.first));
      settle(blob, reader, input.position);
    }
    if (blob.poison) return GraphFallback::kPoisoned;
    if (!blob.value || blob.value.num_elements() == 0) continue;
    const std::byte* const data = blob.value.data();
    input.moves |= input.data != nullptr && input.data != data;
    input.data = data;
  }
  return std::nullopt;
}

// Why the graph can't run on the values that are there.
std::optional<GraphFallback> KernelStream::misfit(const Call& call, GraphStretch& stretch) {
  std::optional<GraphFallback> reason;
  for (size_t i = 0; i < stretch.inputs.size(); ++i) {
    const CapturedStretch::Input& captured = stretch.captured->inputs[i];
    if (!stretch.inputs[i].is_read) continue;
    const Blob& blob = call.blob(stretch.inputs[i].name);
    if (static_cast<bool>(blob.value) != captured.is_present) return GraphFallback::kLayout;
    if (!captured.is_present) continue;
    if (TensorLayout::of(blob.value) != captured.layout) return GraphFallback::kLayout;
    if (captured.place || captured.storage == nullptr) continue;
    // (Other values of the same memory may have been captured as parts of it.)
    const bool is_there = blob.value.data() == captured.data && storage_of(blob.value) == captured.storage &&
                          blob.value.storage_bytes() == captured.storage_bytes;
    if (!is_there) reason = GraphFallback::kMoved;
    if (!captured.is_written || blob.value.is_reusable()) continue;
    stretch.inputs[i].moves = true;  // the next graph has a copy of its own
    reason = GraphFallback::kHeld;
  }
  return reason;
}

bool KernelStream::capture_stretch(const Call& call, GraphStretch& stretch, DeviceGraphs& graphs) {
  auto captured = std::make_unique<CapturedStretch>();
  std::vector<Blob> aside(stretch.inputs.size());
  Capture capture;
  const int64_t kernels_before = kernels_run_;
  try {
    for (const GraphStretch::Input& input : stretch.inputs)
      captured->inputs.push_back(place_of(call.blob(input.name).value, input));
    std::vector<NativeTensor> held;  // whose memory nobody may take over
    for (size_t i = 0; i < aside.size(); ++i) {
      Blob& blob = call.blob(stretch.inputs[i].name);
      aside[i] = std::move(blob);
      blob.reset();
      const CapturedStretch::Input& input = captured->inputs[i];
      if (!input.is_present) continue;
      blob.value = input.place ? input.place : device_stream().unowned(aside[i].value);
      if (!input.is_written) held.push_back(blob.value);
    }
    record_calls(call, stretch, capture, *captured);
  } catch (const std::exception& error) {
    log_debug("device {}: calls {} to {} aren't captured: {}", device_, stretch.first, stretch.end, error.what());
    captured->graph.reset();
    stretch.is_refused = !capture.refused && !aborting();
  }
  captured->num_kernels = kernels_run_ - kernels_before;
  kernels_run_ = kernels_before;
  for (uint32_t i = 0; i < stretch.end - stretch.first; ++i) {
    for (OperandId name : call.list.graph.outputs(call.list.operators[call.op_index + i])) call.blob(name).reset();
  }
  for (size_t i = 0; i < aside.size(); ++i) {
    Blob& blob = call.blob(stretch.inputs[i].name);
    if (!aside[i].is_empty()) blob = std::move(aside[i]);
  }
  if (capture.refused) graphs.refuse(stretch.first + (*capture.refused - call.op_index));
  if (!captured->graph) return false;
  stretch.captured = std::move(captured);
  return true;
}

// Without a graph, or by an exception, where that isn't possible.
void KernelStream::record_calls(const Call& call, const GraphStretch& stretch, Capture& capture,
                                CapturedStretch& captured) {
  DeviceStream& stream = device_stream();
  stream.mark({call.run.piece.sequence, call.number()});
  stream.begin_capture();
  std::exception_ptr error;
  bool is_noted = false;
  capture_ = &capture;
  try {
    Call at = call;
    run_calls(at, call.op_index + (stretch.end - stretch.first));
    is_noted = !capture.refused && !aborting();
    if (is_noted) note_outputs(call, stretch, captured);
  } catch (...) {
    error = std::current_exception();
  }
  capture_ = nullptr;
  std::unique_ptr<DeviceGraph> graph = stream.end_capture();
  if (error) std::rethrow_exception(error);
  if (is_noted) captured.graph = std::move(graph);
}

CapturedStretch::Input KernelStream::place_of(const NativeTensor& value, const GraphStretch::Input& input) {
  CapturedStretch::Input place;
  if (!input.is_read || !value) return place;
  place.is_present = true;
  place.layout = TensorLayout::of(value);
  if (value.num_elements() == 0) return place;
  place.data = value.data();
  place.storage = storage_of(value);
  place.storage_bytes = value.storage_bytes();
  if (!input.moves) {
    place.is_written = input.dies && value.is_reusable();
    return place;
  }
  if (value.is_contiguous()) {
    place.place = device_stream().allocate(value.local_shape(), value.dtype(), statistics_.memory);
  } else {
    const NativeTensor all = device_stream().allocate({extent(place.layout)}, value.dtype(), statistics_.memory);
    place.place = strided_view(all, place.layout.local_shape, place.layout.strides, 0);
  }
  place.data = place.place.data();
  place.storage = storage_of(place.place);
  return place;
}

// Where what the calls have made lies: in an input's memory, or in the graph's.
void KernelStream::note_outputs(const Call& call, const GraphStretch& stretch, CapturedStretch& captured) {
  std::vector<const void*> storages;  // of the results
  for (OperandId name : stretch.outputs) {
    const NativeTensor& value = call.blob(name).value;
    DTORCH_CHECK(value, "a captured call has made nothing");
    CapturedStretch::Output& output = captured.outputs.emplace_back();
    output.layout = TensorLayout::of(value);
    if (value.num_elements() == 0) {
      output.source = captured.results.size();
      captured.results.push_back(value);
      storages.push_back(nullptr);
      continue;
    }
    const void* const storage = storage_of(value);
    const auto input = std::ranges::find(captured.inputs, storage, &CapturedStretch::Input::storage);
    const auto result = std::ranges::find(storages, storage);
    output.is_of_input = input != captured.inputs.end();
    DType dtype = value.dtype();
    if (output.is_of_input) {
      output.source = static_cast<size_t>(input - captured.inputs.begin());
      output.offset = elements_between(input->data, value.data(), dtype);
      output.is_whole = output.offset == 0 && output.layout == input->layout;
      dtype = input->layout.dtype;
    } else {
      output.source = static_cast<size_t>(result - storages.begin());
      output.offset = elements_between(static_cast<const std::byte*>(storage), value.data(), dtype);
      if (result == storages.end()) {
        storages.push_back(storage);
        captured.results.push_back(storage_as_tensor(value));
      }
      dtype = captured.results[output.source].dtype();
    }
    if (dtype != value.dtype()) throw RuntimeFault("a result has the memory of another dtype's value");
  }
}

// Null: it has run. What it hands out is new memory, or what it wrote to was an input.
std::optional<GraphFallback> KernelStream::launch_graph(const Call& call, GraphStretch& stretch) {
  const CapturedStretch& captured = *stretch.captured;
  DeviceStream& stream = device_stream();
  std::vector<NativeTensor> results;
  try {
    for (const NativeTensor& result : captured.results)
      results.push_back(stream.allocate({result.num_elements()}, result.dtype(), statistics_.memory));
  } catch (const RuntimeFault&) {
    return GraphFallback::kNoMemory;  // the call that is short of it will say so
  }
  PoisonPtr poison;
  bool is_launched = false;
  try {
    stream.mark({call.run.piece.sequence, call.number()});
    for (size_t i = 0; i < stretch.inputs.size(); ++i) {
      if (captured.inputs[i].place) stream.copy(call.blob(stretch.inputs[i].name).value, captured.inputs[i].place);
    }
    captured.graph->launch();
    is_launched = true;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].num_elements() != 0) stream.copy(captured.results[i], results[i]);
    }
  } catch (const std::exception&) {
    if (!is_launched) return GraphFallback::kRefused;
    poison = fail(call, std::current_exception());  // what the graph wrote to is gone
  }
  hand_out_results(call, stretch, results, poison);
  kernels_run_ += captured.num_kernels;
  statistics_.graphs.launched.fetch_add(1, std::memory_order_relaxed);
  statistics_.graphs.kernels.fetch_add(captured.num_kernels, std::memory_order_relaxed);
  return std::nullopt;
}

void KernelStream::hand_out_results(const Call& call, const GraphStretch& stretch,
                                    const std::vector<NativeTensor>& results, const PoisonPtr& poison) {
  std::vector<NativeTensor> values;
  for (const CapturedStretch::Output& output : stretch.captured->outputs) {
    const NativeTensor& source =
        output.is_of_input ? call.blob(stretch.inputs[output.source].name).value : results[output.source];
    values.push_back(output.is_whole
                         ? source
                         : strided_view(source, output.layout.local_shape, output.layout.strides, output.offset));
  }
  for (const GraphStretch::Input& input : stretch.inputs) {
    if (input.dies) drop(call.blob(input.name));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    Blob& blob = call.blob(stretch.outputs[i]);
    blob.reset();
    if (poison)
      blob.poison = poison;
    else
      blob.value = std::move(values[i]);
  }
}

}  // namespace dtorch
