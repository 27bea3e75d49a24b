// What a call means, worked out once: InferenceCache maps (operator, attributes, input metas, given layouts, conversion
// policy) to the call's spec or to the conversions that it needs first. A hit allocates nothing. What is kept is
// bounded: when there are too many entries all go, and calls are inferred anew as they come. Specs stay, as the
// controller and the nodes know them by number: one for each call that differs from all before it. One a Graph; used by
// its user thread.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/def/operator_def.h"
#include "runtime/client/hashed_pointers.h"

namespace dtorch {

struct InferenceKey {
  const OperatorDef* op = nullptr;
  std::string_view attributes;
  std::span<const TensorMeta* const> inputs;
  std::span<const Layout> output_layouts;
  ConversionPolicy policy = ConversionPolicy::kLocal;
};

// Attributes as two words: all of them when they have at most 16 bytes, else their hash.
struct AttributeWords {
  static constexpr size_t kMaxBytes = 2 * sizeof(uint64_t);
  AttributeWords() = default;
  explicit AttributeWords(std::string_view bytes) {
    const char* data = bytes.data();
    const size_t size = bytes.size();
    if (size > kMaxBytes) {
      set_hash(bytes);
    } else if (size >= sizeof(uint64_t)) {  // the two overlap
      low = load<uint64_t>(data);
      high = load<uint64_t>(data + size - sizeof(uint64_t));
    } else if (size >= sizeof(uint32_t)) {
      low = load<uint32_t>(data);
      high = load<uint32_t>(data + size - sizeof(uint32_t));
    } else if (size > 0) {  // first, middle and last are all of 1 to 3 bytes
      low = load<uint8_t>(data);
      high = load<uint8_t>(data + size / 2) << 8 | load<uint8_t>(data + size - 1);
    }
  }
  uint64_t low = 0, high = 0;
  friend bool operator==(const AttributeWords&, const AttributeWords&) = default;

 private:
  template <class T>
  static uint64_t load(const char* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  void set_hash(std::string_view bytes);
};

// The key of a usual call, few inputs and short attributes, as plain words that are compared one by one.
class UsualKey {
 public:
  static constexpr size_t kMaxInputs = 3;
  void set_input(size_t i, const TensorMeta* meta) { words_[3 + i] = reinterpret_cast<uint64_t>(meta); }
  // attributes: at most AttributeWords::kMaxBytes.
  void set_call(const OperatorDef& op, std::string_view attributes, ConversionPolicy policy) {
    set_call(op, AttributeWords(attributes), attributes.size(), policy);
  }
  void set_call(const OperatorDef& op, const AttributeWords& encoded, size_t num_bytes, ConversionPolicy policy) {
    // An address has 48 bits at most.
    words_[0] = reinterpret_cast<uint64_t>(&op) << 16 | num_bytes << 8 | static_cast<uint64_t>(policy);
    words_[1] = encoded.low;
    words_[2] = encoded.high;
  }
  // Spread by one multiplication. Inputs behind the first two are only compared.
  uint64_t hash() const {
    const uint64_t mixed = words_[0] ^ words_[1] ^ words_[2] ^ std::rotl(words_[3], 20) ^ std::rotl(words_[4], 40);
    return mixed * 0x9E3779B97F4A7C15ull >> 32;
  }
  friend bool operator==(const UsualKey& a, const UsualKey& b) {
    uint64_t difference = 0;
    for (size_t i = 0; i < kNumWords; ++i) difference |= a.words_[i] ^ b.words_[i];
    return difference == 0;
  }

 private:
  static constexpr size_t kNumWords = 3 + kMaxInputs;
  uint64_t words_[kNumWords] = {};
};

struct Inference {
  AttributeWords words;  // of `attributes`
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
  // Some 30 MB.
  static constexpr size_t kMaxEntries = size_t{1} << 16;
  // num_devices: of the job; a result on any other device is a MeshError.
  explicit InferenceCache(int64_t num_devices, size_t max_entries = kMaxEntries);
  // Throws ShapeError, DTypeError, MeshError or PlacementError (with `where`) when the call is illegal; nothing is kept
  // then. What it returns lives until the next get(), its spec as long as the cache.
  const Inference& get(const InferenceKey& key, const SourceLine& where);
  // What get() has given for a usual call and remember() was told of; null: ask get().
  const Inference* find(const UsualKey& key) {
    const Usual& usual = usual_[key.hash() & (kNumUsual - 1)];
    // A place that nothing is kept in has a key of zeros, which no call has.
    if (!(usual.key == key)) return nullptr;
    ++hits_;
    return usual.inference;
  }
  void remember(const UsualKey& key, const Inference& inference) {
    if (enabled_) usual_[key.hash() & (kNumUsual - 1)] = {key, &inference};
  }
  size_t num_entries() const { return entries_.size(); }
  size_t num_specs() const { return specs_.size(); }
  // In the order in which they came up; valid as long as the cache.
  const std::vector<std::unique_ptr<OperatorSpec>>& specs() const { return specs_; }
  uint64_t hits() const { return hits_; }
  // Off: every call is inferred anew; what is known stays and is used again once on. For tests: what a cache makes of a
  // call must be what inference makes of it.
  void set_enabled(bool on) {
    enabled_ = on;
    usual_.assign(kNumUsual, {});
  }
  // What was inferred while off, one entry a call and conversion, in the order of the calls.
  const std::vector<std::unique_ptr<Inference>>& uncached() const { return uncached_; }

 private:
  const Inference& add(const InferenceKey& key, const AttributeWords& words, uint64_t hash, const SourceLine& where);
  void forget_entries();
  const OperatorSpec* spec_for(const OperatorDef& op, const std::string& attributes,
                               std::span<const TensorMeta* const> inputs, std::vector<const TensorMeta*> outputs);
  void check_mesh(const DeviceMesh& mesh, const char* op);

  struct Usual {
    UsualKey key;
    const Inference* inference = nullptr;
  };
  static constexpr size_t kNumUsual = 1024;  // a power of two
  const int64_t num_devices_;
  const size_t max_entries_;
  std::vector<const MeshData*> known_meshes_;  // checked
  std::vector<std::unique_ptr<Inference>> entries_;
  HashedPointers<Inference> entry_of_call_;
  std::vector<Usual> usual_;  // of a place's calls the last
  std::vector<std::unique_ptr<OperatorSpec>> specs_;
  HashedPointers<OperatorSpec> known_specs_;
  uint64_t hits_ = 0;
  bool enabled_ = true;
  std::vector<std::unique_ptr<Inference>> uncached_;
};

}  // namespace dtorch
