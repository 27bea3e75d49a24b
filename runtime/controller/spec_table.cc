#include "runtime/controller/spec_table.h"

#include "ops/def/moves_data.h"

namespace dtorch {

const char* SpecTable::op_name(uint32_t id) const {
  if (id == kReleaseSpec) return "release";
  std::lock_guard lock(mutex_);
  return id < infos_.size() ? infos_[id].op_name : "unknown";
}

SpecInfo& SpecTable::add(const OperatorSpec& spec, bool has_feed) {
  const OperatorDef& def = OperatorRegistry::global().at(spec.op);
  SpecInfo info;
  info.spec = &spec;
  info.op_name = def.called();
  for (const TensorMeta* meta : spec.outputs) info.output_bytes += meta->num_bytes();
  info.is_read = def.lowering == Lowering::kRead;
  info.ends_subgraph = def.ends_subgraph || info.is_read;
  info.moves_data = moves_data(spec, OperatorRegistry::global());
  info.has_feed = has_feed;
  info.droppable = def.klass == OperatorClass::kPure && !has_feed;
  std::lock_guard lock(mutex_);
  if (spec.id >= infos_.size()) infos_.resize(size_t{spec.id} + 1);
  DTORCH_CHECK(infos_[spec.id].spec == nullptr, "two specs have the number " + std::to_string(spec.id));
  return infos_[spec.id] = info;
}

}  // namespace dtorch
