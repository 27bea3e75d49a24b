// KernelStream's replay of templates (template_plan.h). Values have names in an instance: they lie in a table of their
// own, where every instance of a Graph finds the same places. Live-ins move there from their slots, what is left moves
// to its slots when the instance ends.
#include "runtime/worker/kernel_stream.h"

namespace dtorch {

namespace {

void move_blob(Blob& from, Blob& to) {
  to = std::move(from);
  from.reset();
}

void take_scalars(TemplatePlan::Device& device, const Replay& replay) {
  for (uint32_t scalar : replay.new_varying) device.varying.add(scalar);
  const TemplateBody& body = *replay.body;
  size_t at = 0;
  for (uint32_t scalar :
       device.varying.range(body.scalars_before(replay.first_call), body.scalars_before(replay.end_call)))
    device.scalars[scalar] = replay.scalars[at++];
}

}  // namespace

void KernelStream::replay(PieceRun& run, Table& table) {
  const Replay& replay = run.replay->replay;
  const TemplateBody& body = *replay.body;
  TemplatePlan::Device& device = run.replay->plan->devices[local_index_];
  if (table.names.size() < body.num_names()) {
    table.names.resize(body.num_names());
    table.slot_of_name.resize(body.num_names());
  }
  take_scalars(device, replay);
  const Scalar* scalars = device.scalars.data();
  if (!run.scalars_of_device.empty()) {
    // Other threads read them while the next replay comes.
    run.scalars_of_device[local_index_] = device.scalars;
    scalars = run.scalars_of_device[local_index_].data();
  }
  size_t next_operand = 0;
  for (OperandId name : body.externals(replay.first_call, replay.end_call)) {
    const OperandId slot = replay.operands[next_operand++];
    table.slot_of_name[name] = slot;
    if (body.is_live_in(name)) move_blob(table.slots[slot], table.names[name]);
  }
  run_calls(run, {.blobs = table.names.data(),
                  .graph = body.calls(),
                  .operators =
                      std::span(body.calls().operators).subspan(replay.first_call, replay.end_call - replay.first_call),
                  .specs = device.specs.data() + replay.first_call,
                  .specs_by_call = true,
                  .scalars = scalars,
                  .fused = table.fused,
                  .plans = device.plans.data() + replay.first_call,
                  .graphs = graphs_of(body, device),
                  .first_call = replay.first_call});
  if (!replay.ends) return;
  const auto publish = [&](OperandId name, OperandId slot) { move_blob(table.names[name], table.slots[slot]); };
  for (OperandId name : body.externals(0, replay.end_call)) {
    if (body.alive_before(name, replay.end_call)) publish(name, table.slot_of_name[name]);
  }
  if (replay.end_call == body.num_calls()) return;
  for (OperandId name : body.temporaries_alive(replay.end_call)) publish(name, replay.operands[next_operand++]);
}

}  // namespace dtorch
