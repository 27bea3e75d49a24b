#include "runtime/client/inference.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "mesh/mesh_kinds.h"
#include "runtime/client/inference_errors.h"

namespace dtorch {
namespace {

// Addresses are turned and added up, then spread by one multiplication.
uint64_t hash_of(const InferenceKey& key, const AttributeWords& words) {
  uint64_t hash = reinterpret_cast<uint64_t>(key.op) + static_cast<uint64_t>(key.policy);
  for (const TensorMeta* meta : key.inputs) hash = std::rotl(hash, 7) + reinterpret_cast<uint64_t>(meta);
  for (const Layout& layout : key.output_layouts)
    hash = std::rotl(hash, 11) + reinterpret_cast<uint64_t>(layout.data());
  hash = std::rotl(hash, 7) + words.low;
  hash = (std::rotl(hash, 7) + words.high) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 32);
}

bool same(const Inference& entry, const InferenceKey& key, const AttributeWords& words, uint64_t hash) {
  const size_t size = key.attributes.size();
  if (entry.hash != hash || entry.op != key.op || entry.policy != key.policy || entry.words != words) return false;
  if (entry.attributes.size() != size || entry.inputs.size() != key.inputs.size() ||
      entry.output_layouts.size() != key.output_layouts.size()) {
    return false;
  }
  for (size_t i = 0; i < key.inputs.size(); ++i) {
    if (entry.inputs[i] != key.inputs[i]) return false;
  }
  for (size_t i = 0; i < key.output_layouts.size(); ++i) {
    if (entry.output_layouts[i] != key.output_layouts[i]) return false;
  }
  return size <= AttributeWords::kMaxBytes || entry.attributes == key.attributes;
}

// The axis that stands in the way of a rule that sees all of them: the first that the fix changes. -1: there is no fix.
int64_t first_changed_axis(std::span<const TensorMeta* const> inputs, const std::vector<Conversion>& fix) {
  if (fix.empty()) return -1;
  const Layout &wanted = fix[0].layout, &had = inputs[static_cast<size_t>(fix[0].input)]->layout;
  int64_t axis = 0;
  while (axis < had.mesh().num_axes() && wanted.placement(axis) == had.placement(axis)) ++axis;
  return axis < had.mesh().num_axes() ? axis : -1;
}

// A rule may depend on its inputs' layouts (how heads are split): what suits these inputs need not suit those that a
// fix makes. Then the fix is what always holds, all Replicate.
void prove_fix(const InferenceKey& key, const InferContext& context, std::span<const OutputMeta> outputs,
               std::span<const int64_t> output_ndims, MatchFailure* failure) {
  std::vector<const TensorMeta*> fixed(key.inputs.begin(), key.inputs.end());
  for (const Conversion& conversion : failure->fix) {
    const TensorMeta*& meta = fixed.at(static_cast<size_t>(conversion.input));
    meta = intern_meta(meta->global_shape, meta->dtype, conversion.layout);
  }
  const InferContext changed{context.op, fixed, context.attributes_};
  if (match_rule(key.op->rule(changed, outputs), fixed, output_ndims, key.policy).match) return;
  failure->fix.clear();
  for (size_t i = 0; i < key.inputs.size(); ++i) {
    const Layout& layout = key.inputs[i]->layout;
    if (layout.is_replicated()) continue;
    failure->fix.push_back({static_cast<int32_t>(i), Layout::replicated(layout.mesh())});
  }
}

// The output layouts; fills `conversions` when the inputs must be converted first.
std::vector<Layout> infer_layouts(const InferenceKey& key, const InferContext& context,
                                  std::span<const OutputMeta> outputs, const SourceLine& where,
                                  std::vector<Conversion>* conversions) {
  const OperatorDef& op = *key.op;
  if (!key.output_layouts.empty() || outputs.empty()) {
    DTORCH_CHECK(key.output_layouts.size() == outputs.size(), std::string(op.name) + ": one layout an output");
    return {key.output_layouts.begin(), key.output_layouts.end()};
  }
  DTORCH_CHECK((op.rule || op.layouts) && !key.inputs.empty(), std::string(op.name) + ": neither a rule nor layouts");
  check_one_mesh(op, key.inputs);
  if (op.layouts) {
    std::string reason;
    if (auto layouts = op.layouts(context, outputs, &reason)) return std::move(*layouts);
    MatchFailure failure;
    failure.reason = std::move(reason);
    failure.fix = cheapest_fix(context, op.layouts, outputs);
    failure.axis = first_changed_axis(key.inputs, failure.fix);
    failure.legal_rows = legal_rows_of(context, op.layouts, outputs);
    throw placement_error(op, key.inputs, std::move(failure), where);
  }
  std::vector<int64_t> output_ndims;
  for (const OutputMeta& output : outputs) output_ndims.push_back(output.global_shape.ndim());
  MatchResult result = match_rule(op.rule(context, outputs), key.inputs, output_ndims, key.policy);
  if (!result.match) {
    prove_fix(key, context, outputs, output_ndims, &result.failure);
    throw placement_error(op, key.inputs, std::move(result.failure), where);
  }
  *conversions = std::move(result.match->conversions);
  return std::move(result.match->output_layouts);
}

}  // namespace

InferenceCache::InferenceCache(int64_t num_devices)
    : num_devices_(num_devices), table_(256, nullptr), usual_(kNumUsual) {}

void InferenceCache::check_mesh(const DeviceMesh& mesh, const char* op) {
  if (std::ranges::find(known_meshes_, mesh.data()) != known_meshes_.end()) return;
  for (int64_t device : mesh.devices()) {
    if (device < num_devices_) continue;
    const int64_t last = std::ranges::max(mesh.devices());
    throw MeshError(std::string("[") + op + "] device " + std::to_string(device) + " of the " + mesh.str() +
                    " isn't in this job, which has devices 0 to " + std::to_string(num_devices_ - 1) +
                    "; start it with --devices " + std::to_string(last + 1) + " or more");
  }
  // One that was made before the job.
  const std::string problem = problem_of_mesh_kind(mesh.kind());
  if (!problem.empty()) throw MeshError(std::string("[") + op + "] the " + mesh.str() + ": " + problem);
  known_meshes_.push_back(mesh.data());
}

void AttributeWords::set_hash(std::string_view bytes) { low = XXH3_64bits(bytes.data(), bytes.size()); }

const Inference& InferenceCache::get(const InferenceKey& key, const SourceLine& where) {
  const AttributeWords words(key.attributes);
  const uint64_t hash = hash_of(key, words);
  const size_t mask = table_.size() - 1;
  for (size_t at = hash & mask; enabled_ && table_[at]; at = (at + 1) & mask) {
    if (same(*table_[at], key, words, hash)) {
      ++hits_;
      return *table_[at];
    }
  }
  return add(key, words, hash, where);
}

const Inference& InferenceCache::add(const InferenceKey& key, const AttributeWords& words, uint64_t hash,
                                     const SourceLine& where) {
  auto entry = std::make_unique<Inference>();
  entry->hash = hash;
  entry->words = words;
  entry->op = key.op;
  entry->attributes = key.attributes;
  entry->inputs.assign(key.inputs.begin(), key.inputs.end());
  entry->output_layouts.assign(key.output_layouts.begin(), key.output_layouts.end());
  entry->policy = key.policy;
  DTORCH_CHECK(key.op->infer, std::string(key.op->name) + " is a composition of other operators: nothing to record");
  entry->decoded = key.op->attributes.decode(entry->attributes);
  InferContext context{key.op->called(), key.inputs, entry->decoded.get()};
  try {
    std::vector<OutputMeta> outputs = key.op->infer(context);
    std::vector<Layout> layouts = infer_layouts(key, context, outputs, where, &entry->conversions);
    for (const Layout& layout : layouts) check_mesh(layout.mesh(), key.op->called());
    if (entry->conversions.empty()) {
      std::vector<const TensorMeta*> metas;
      for (size_t i = 0; i < outputs.size(); ++i)
        metas.push_back(intern_meta(outputs[i].global_shape, outputs[i].dtype, layouts[i]));
      entry->spec = spec_for(*key.op, entry->attributes, key.inputs, std::move(metas));
    }
  } catch (const PlacementError&) {
    throw;
  } catch (const UserError&) {
    rethrow_with_call(*key.op, entry->attributes, key.inputs, where);
  }
  if (!enabled_) {
    uncached_.push_back(std::move(entry));
    return *uncached_.back();
  }
  if ((entries_.size() + 1) * 2 > table_.size()) {
    table_.assign(table_.size() * 2, nullptr);
    for (const auto& known : entries_) insert(known.get());
  }
  insert(entry.get());
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

void InferenceCache::insert(const Inference* entry) {
  const size_t mask = table_.size() - 1;
  size_t at = entry->hash & mask;
  while (table_[at]) at = (at + 1) & mask;
  table_[at] = entry;
}

const OperatorSpec* InferenceCache::spec_for(const OperatorDef& op, const std::string& attributes,
                                             std::span<const TensorMeta* const> inputs,
                                             std::vector<const TensorMeta*> outputs) {
  if (op.index >= specs_by_op_.size()) specs_by_op_.resize(op.index + size_t{1});
  for (const OperatorSpec* spec : specs_by_op_[op.index]) {
    if (spec->attributes == attributes && std::ranges::equal(spec->inputs, inputs) && spec->outputs == outputs)
      return spec;
  }
  auto spec = std::make_unique<OperatorSpec>();
  spec->id = static_cast<uint32_t>(specs_.size());
  spec->op = op.index;
  spec->attributes = attributes;
  spec->inputs.assign(inputs.begin(), inputs.end());
  spec->outputs = std::move(outputs);
  specs_.push_back(std::move(spec));
  specs_by_op_[op.index].push_back(specs_.back().get());
  return specs_.back().get();
}

}  // namespace dtorch
