#include "runtime/controller/spec_table.h"

#include "ops/def/moves_data.h"

namespace dtorch {

namespace {

// Of an elementwise operator whose inputs are as large as its output, or one element, so that elements meet in the same
// places.
const TensorMeta* fusable_output(const OperatorSpec& spec, const OperatorDef& def) {
  if (!def.elementwise || spec.outputs.size() != 1) return nullptr;
  const TensorMeta& output = *spec.outputs[0];
  for (const TensorMeta* input : spec.inputs) {
    if (input->global_shape != output.global_shape && input->global_shape.num_elements() != 1) return nullptr;
  }
  return &output;
}

}  // namespace

const char* SpecTable::op_name(uint32_t id) const {
  if (id == kReleaseSpec) return "release";
  if (id == kAliasSpec) return "alias";
  std::lock_guard lock(mutex_);
  return id < infos_.size() ? infos_[id].op_name : "unknown";
}

const OperatorSpec* SpecTable::spec(uint32_t id) const {
  std::lock_guard lock(mutex_);
  return id < infos_.size() ? infos_[id].spec : nullptr;
}

std::string SpecTable::describe_values(uint32_t id) const {
  if (id == kReleaseSpec) return "";
  std::lock_guard lock(mutex_);
  if (id >= infos_.size() || infos_[id].spec == nullptr) return "";
  const OperatorSpec& spec = *infos_[id].spec;
  std::string text;
  int64_t bytes = 0;
  for (const TensorMeta* meta : spec.outputs.empty() ? spec.inputs : spec.outputs) {
    text += (text.empty() ? "" : "; ") + meta->str();
    bytes += meta->num_bytes();
  }
  return text + ", " + std::to_string(bytes) + " bytes";
}

std::string SpecTable::describe_output(uint32_t id, size_t output) const {
  std::lock_guard lock(mutex_);
  if (id >= infos_.size() || infos_[id].spec == nullptr || output >= infos_[id].spec->outputs.size()) return "";
  return infos_[id].spec->outputs[output]->str();
}

SpecInfo& SpecTable::add(const OperatorSpec& spec, bool has_feed) {
  const OperatorRegistry& registry = OperatorRegistry::global();
  const OperatorDef& def = registry.at(spec.op);
  SpecInfo info;
  info.spec = &spec;
  info.op_name = def.called();
  for (const TensorMeta* meta : spec.outputs) info.output_bytes += meta->num_bytes();
  info.is_read = def.lowering == Lowering::kRead;
  info.is_step = def.is_step;
  info.redistributes = def.lowering == Lowering::kTransfer;
  info.moves_data = moves_data(spec, registry);
  info.has_effect = def.klass == OperatorClass::kEffect;
  info.has_feed = has_feed;
  info.droppable = def.klass == OperatorClass::kPure && !has_feed;
  info.fusable = fusable_output(spec, def);
  std::lock_guard lock(mutex_);
  if (spec.id == infos_.size()) return infos_.emplace_back(info);  // nearly always
  if (spec.id > infos_.size()) infos_.resize(size_t{spec.id} + 1);
  DTORCH_CHECK(infos_[spec.id].spec == nullptr, "two specs have the number " + std::to_string(spec.id));
  return infos_[spec.id] = info;
}

}  // namespace dtorch
