// KernelStream: its device's values into a snapshot and out of one, and effects that aren't had twice. Values never
// change (D1), so a handle keeps one: whoever would have taken over its memory finds that it isn't the only owner.
#include <algorithm>

#include "ops/def/effects.h"
#include "runtime/worker/kernel_stream_call.h"

namespace dtorch {

KeptPart KernelStream::kept() {
  KeptPart part;
  for (Table& table : tables_) {
    for (size_t slot = 0; slot < table.slots.size(); ++slot) {
      Blob& blob = table.slots[slot];
      if (blob.is_empty()) continue;
      if (queue_ && blob.pending) parker_->wait([&] { return blob.pending->event.is_set() || aborting(); }, [] {});
      KeptValue& kept = part.emplace_back(KeptValue{table.graph, static_cast<OperandId>(slot), {}, {}, {}});
      if (!blob.pending) {
        kept.value = blob.value;
        kept.poison = blob.poison;
      } else if (blob.pending->event.is_set()) {
        kept.value = blob.pending->value;
        if (blob.pending->ready) device_stream().wait(blob.pending->ready);
        kept.poison = blob.pending->poison;
      } else {
        blob.pending->is_shared = true;
        kept.pending = blob.pending;
      }
    }
  }
  if (queue_) take_to_host(part);
  std::sort(part.begin(), part.end(), [](const KeptValue& a, const KeptValue& b) {
    return std::pair(a.graph, a.slot) < std::pair(b.graph, b.slot);
  });
  return part;
}

void KernelStream::restore(const KeptPart& part, const std::unordered_map<GraphId, size_t>& numbers) {
  for (const KeptValue& kept : part) {
    const size_t number = numbers.at(kept.graph);
    if (tables_.size() <= number) tables_.resize(number + 1);
    Table& table = tables_[number];
    table.graph = kept.graph;
    if (table.slots.size() <= kept.slot) table.slots.resize(std::max<size_t>(kept.slot + 1, 2 * table.slots.size()));
    Blob& blob = table.slots[kept.slot];
    DTORCH_CHECK(blob.is_empty(), "a restored value's slot isn't empty");
    blob.value = queue_ && kept.value ? queue_->from_host(kept.value) : kept.value;
    blob.poison = kept.poison;
    blob.pending = kept.pending;
  }
}

bool KernelStream::was_done(const Call& call) const {
  if (node_->done_effects.empty()) return false;
  const OperatorDef& def = OperatorRegistry::global().at(call.spec->local.op);
  const bool is_of_session = is_session_operator(def) && call.op->num_scalars != 0;
  return node_->done_effects.contains(is_of_session ? call.scalars()[0].bits
                                                    : effects_of_piece(call.run.piece.sequence));
}

}  // namespace dtorch
