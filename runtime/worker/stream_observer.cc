#include "runtime/worker/stream_observer.h"

namespace dtorch {

ProfileRow& StreamObserver::Profile::row(GraphId graph, uint32_t spec) {
  ProfileRow& row = rows[uint64_t{graph} << 32 | spec];
  row.graph = graph;
  row.spec = spec;
  return row;
}

void StreamObserver::start_profile() { profile_.emplace(); }

DeviceProfile StreamObserver::profile(int64_t device) const {
  DeviceProfile profile{.device = device};
  if (!profile_) return profile;
  profile.window_ns = trace_clock_ns() - profile_->begin_ns;
  for (const auto& [key, row] : profile_->rows) profile.rows.push_back(row);
  return profile;
}

void StreamObserver::end(const Place& place, GraphId graph, const LocalSpec& spec, int64_t ragged_bytes) {
  const LocalSpec* const call = &spec;
  end_run(place, graph, {&call, 1}, {&call, 1});
  if (profile_ && ragged_bytes != 0) profile_->row(graph, spec.local.spec->id).bytes += ragged_bytes;
}

void StreamObserver::end_run(const Place& first, GraphId graph, std::span<const LocalSpec* const> calls,
                             std::span<const LocalSpec* const> outputs) {
  const int64_t end_ns = trace_clock_ns();
  if (trace_ != nullptr) {
    trace_->add({.begin_ns = begin_ns_,
                 .end_ns = end_ns,
                 .sequence = first.sequence,
                 .op_index = first.op_index,
                 .kind = TraceKind::kOperator});
  }
  if (!profile_) return;
  const int64_t run_ns = (end_ns - begin_ns_ - waited_ns_) / static_cast<int64_t>(calls.size());
  for (const LocalSpec* call : calls) {
    ProfileRow& row = profile_->row(graph, call->local.spec->id);
    ++row.calls;
    row.run_ns += run_ns;
  }
  for (const LocalSpec* call : outputs) {
    ProfileRow& row = profile_->row(graph, call->local.spec->id);
    for (size_t i = 0; i < call->local.output_boxes.size(); ++i) {
      if (call->is_ragged_output(i)) continue;
      row.bytes += call->local.output_boxes[i].num_elements() * size_of(call->local.spec->outputs[i]->dtype);
    }
  }
}

void StreamObserver::end_wait(GraphId graph, const Arrival& arrival) {
  const int64_t end_ns = trace_clock_ns();
  waited_ns_ += end_ns - wait_begin_ns_;
  if (trace_ != nullptr) {
    trace_->add({.begin_ns = wait_begin_ns_,
                 .end_ns = end_ns,
                 .sequence = arrival.place.sequence,
                 .op_index = arrival.place.op_index,
                 .kind = TraceKind::kWait});
  }
  if (profile_) profile_->row(graph, arrival.spec).wait_ns += end_ns - wait_begin_ns_;
}

void StreamObserver::take_rows(GraphId graph, const Arrival& arrival) {
  if (!profile_) return;
  ProfileRow& row = profile_->row(graph, arrival.spec);
  row.bytes += arrival.value.num_bytes();
  row.moved_bytes += arrival.moved_bytes;
}

}  // namespace dtorch
