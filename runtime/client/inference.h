// What a call means, worked out once: InferenceCache maps (operator, attributes, input metas, given layouts, conversion
// policy) to the call's spec or to the conversions that it needs first. A hit allocates nothing. One a Graph; used by
// its user thread.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/def/operator_def.h"

namespace dtorch {

struct InferenceKey {
  const OperatorDef* op = nullptr;
  std::string_view attributes;
  std::span<const TensorMeta* const> inputs;
  std::span<const Layout> output_layouts;
  ConversionPolicy policy = ConversionPolicy::kLocal;
};

struct Inference {
  uint64_t hash = 0;
  const OperatorDef* op = nullptr;
  std::string attributes;
  std::vector<const TensorMeta*> inputs;
  std::vector<Layout> output_layouts;
  ConversionPolicy policy = ConversionPolicy::kLocal;

  std::shared_ptr<const void> decoded;  // attributes
  std::vector<Conversion> conversions;  // to do first; then the call is another one and `spec` is null
  const OperatorSpec* spec = nullptr;
};

class InferenceCache {
 public:
  // num_devices: of the job; a result on any other device is a MeshError.
  explicit InferenceCache(int64_t num_devices);
  // Throws ShapeError, DTypeError, MeshError or PlacementError (with `where`) when the call is illegal; nothing is kept
  // then. What it returns lives as long as the cache.
  const Inference& get(const InferenceKey& key, const SourceLine& where);
  size_t num_entries() const { return entries_.size(); }
  size_t num_specs() const { return specs_.size(); }
  // In the order in which they came up; valid as long as the cache.
  const std::vector<std::unique_ptr<OperatorSpec>>& specs() const { return specs_; }
  uint64_t hits() const { return hits_; }
  // Off: every call is inferred anew; what is known stays and is used again once on. For tests: what a cache makes of a
  // call must be what inference makes of it.
  void set_enabled(bool on) { enabled_ = on; }
  // What was inferred while off, one entry a call and conversion, in the order of the calls.
  const std::vector<std::unique_ptr<Inference>>& uncached() const { return uncached_; }

 private:
  const Inference& add(const InferenceKey& key, uint64_t hash, const SourceLine& where);
  const OperatorSpec* spec_for(const OperatorDef& op, const std::string& attributes,
                               std::span<const TensorMeta* const> inputs, std::vector<const TensorMeta*> outputs);
  void insert(const Inference* entry);
  void check_mesh(const DeviceMesh& mesh, const char* op);

  const int64_t num_devices_;
  std::vector<const MeshData*> known_meshes_;  // checked
  std::vector<std::unique_ptr<Inference>> entries_;
  std::vector<const Inference*> table_;  // open addressing, a power of two
  std::vector<std::unique_ptr<OperatorSpec>> specs_;
  std::vector<std::vector<const OperatorSpec*>> specs_by_op_;  // by OperatorDef::index
  uint64_t hits_ = 0;
  bool enabled_ = true;
  std::vector<std::unique_ptr<Inference>> uncached_;
};

}  // namespace dtorch
