#include "runtime/client/inference.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "runtime/client/inference_errors.h"

namespace dtorch {
namespace {

// Addresses are turned and added up, then spread by one multiplication.
class Hash {
 public:
  explicit Hash(uint64_t first) : sum_(first) {}
  void add(uint64_t word) { sum_ = std::rotl(sum_, 7) + word; }
  void add(const void* address) { add(reinterpret_cast<uint64_t>(address)); }
  void add(const AttributeWords& words) {
    add(words.low);
    add(words.high);
  }
  uint64_t value() const {
    const uint64_t spread = sum_ * 0x9E3779B97F4A7C15ull;
    return spread ^ (spread >> 32);
  }

 private:
  uint64_t sum_;
};

uint64_t hash_of(const InferenceKey& key, const AttributeWords& words) {
  Hash hash(reinterpret_cast<uint64_t>(key.op) + static_cast<uint64_t>(key.policy));
  for (const TensorMeta* meta : key.inputs) hash.add(meta);
  for (const Layout& layout : key.output_layouts) hash.add(layout.data());
  hash.add(words);
  return hash.value();
}

bool same(const Inference& entry, const InferenceKey& key, const AttributeWords& words) {
  const size_t size = key.attributes.size();
  return entry.op == key.op && entry.policy == key.policy && entry.words == words && entry.attributes.size() == size &&
         std::ranges::equal(entry.inputs, key.inputs) && std::ranges::equal(entry.output_layouts, key.output_layouts) &&
         (size <= AttributeWords::kMaxBytes || entry.attributes == key.attributes);
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

InferenceCache::InferenceCache(int64_t num_devices, size_t max_entries)
    : num_devices_(num_devices), max_entries_(max_entries), usual_(kNumUsual) {}

void InferenceCache::check_mesh(const DeviceMesh& mesh, const char* op) {
  if (std::ranges::find(known_meshes_, mesh.data()) != known_meshes_.end()) return;
  for (int64_t device : mesh.devices()) {
    if (device < num_devices_) continue;
    const int64_t last = std::ranges::max(mesh.devices());
    throw MeshError(std::string("[") + op + "] device " + std::to_string(device) + " of the " + mesh.str() +
                    " isn't in this job, which has devices 0 to " + std::to_string(num_devices_ - 1) +
                    "; start it with --devices " + std::to_string(last + 1) + " or more");
  }
  if (mesh.kind() != "cpu") {
    throw MeshError(std::string("[") + op + "] the " + mesh.str() + " is of kind '" + mesh.kind() +
                    "', this build has 'cpu' devices");
  }
  known_meshes_.push_back(mesh.data());
}

void AttributeWords::set_hash(std::string_view bytes) { low = XXH3_64bits(bytes.data(), bytes.size()); }

const Inference& InferenceCache::get(const InferenceKey& key, const SourceLine& where) {
  const AttributeWords words(key.attributes);
  const uint64_t hash = hash_of(key, words);
  if (enabled_) {
    const auto is_same = [&](const Inference& entry) { return same(entry, key, words); };
    if (const Inference* known = entry_of_call_.find(hash, is_same)) {
      ++hits_;
      return *known;
    }
  }
  return add(key, words, hash, where);
}

const Inference& InferenceCache::add(const InferenceKey& key, const AttributeWords& words, uint64_t hash,
                                     const SourceLine& where) {
  auto entry = std::make_unique<Inference>();
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
  if (entries_.size() >= max_entries_) forget_entries();
  entry_of_call_.insert(hash, entry.get());
  entries_.push_back(std::move(entry));
  return *entries_.back();
}

// All at once: what a program still uses is soon there again, and nothing has to be noted when an entry is used.
void InferenceCache::forget_entries() {
  entry_of_call_.clear();
  usual_.assign(kNumUsual, {});
  entries_.clear();
}

const OperatorSpec* InferenceCache::spec_for(const OperatorDef& op, const std::string& attributes,
                                             std::span<const TensorMeta* const> inputs,
                                             std::vector<const TensorMeta*> outputs) {
  Hash hash(op.index);
  for (const TensorMeta* meta : inputs) hash.add(meta);
  for (const TensorMeta* meta : outputs) hash.add(meta);
  hash.add(AttributeWords(attributes));
  const auto is_same = [&](const OperatorSpec& spec) {
    return spec.op == op.index && spec.attributes == attributes && std::ranges::equal(spec.inputs, inputs) &&
           spec.outputs == outputs;
  };
  if (const OperatorSpec* known = known_specs_.find(hash.value(), is_same)) return known;
  auto spec = std::make_unique<OperatorSpec>();
  spec->id = static_cast<uint32_t>(specs_.size());
  spec->op = op.index;
  spec->attributes = attributes;
  spec->inputs.assign(inputs.begin(), inputs.end());
  spec->outputs = std::move(outputs);
  specs_.push_back(std::move(spec));
  known_specs_.insert(hash.value(), specs_.back().get());
  return specs_.back().get();
}

}  // namespace dtorch
