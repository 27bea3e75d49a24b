#include "runtime/client/lineage.h"

#include <algorithm>

#include "runtime/client/graph_core.h"

namespace dtorch {
namespace {

// A program that never reads would keep everything: a way longer than this is cut.
constexpr uint32_t kMaxDepth = 1000;

}  // namespace

void counted_add_ref(Lineage* object) { object->add_ref(); }
void counted_release(Lineage* object) {
  if (object->drop_ref()) delete object;
}

void note_call(std::span<const Tensor* const> inputs, std::span<Tensor> outputs, const Origin& origin) {
  if (outputs.empty()) return;
  GraphCore& graph = outputs[0].value()->graph();
  auto lineage = make_intrusive<Lineage>();
  lineage->origin = origin;
  lineage->number = graph.next_call_number();
  lineage->num_reads = graph.num_reads();
  for (const Tensor* input : inputs) {
    const Value& value = *input->value();
    IntrusivePtr<Lineage> before = value.lineage();
    if (before && (before->num_reads != lineage->num_reads || before->depth >= kMaxDepth)) before.reset();
    if (before) lineage->depth = std::max(lineage->depth, before->depth + 1);
    lineage->inputs.push_back({value.meta(), value.origin(), std::move(before)});
  }
  for (const Tensor& output : outputs) output.value()->set_lineage(lineage);
}

}  // namespace dtorch
