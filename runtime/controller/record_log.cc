#include "runtime/controller/record_log.h"

#include <algorithm>
#include <bit>

namespace dtorch {

namespace {

// Folds a word into a hash (the finaliser of a 64-bit multiplicative generator).
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (std::rotl(hash, 23) ^ word) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 32);
}

uint64_t word_of(const void* pointer) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer)); }

}  // namespace

RecordShape RecordShape::of(const RecordReader& record) {
  const SourceLine where = record.where();
  return {.spec = record.spec(),
          .file = where.file,
          .line = where.line,
          .num_inputs = static_cast<uint16_t>(record.inputs().size()),
          .num_outputs = static_cast<uint16_t>(record.outputs().size()),
          .num_releases = static_cast<uint16_t>(record.releases().size()),
          .num_scalars = static_cast<uint8_t>(record.scalars().size()),
          .has_payload = record.has_payload()};
}

uint64_t RecordShape::hash() const { return mix(mix(mix(word_of(spec), word_of(file)), line), counts()); }

void RecordStretch::append(const RecordShape& shape, std::span<const uint32_t> record_operands,
                           std::span<const Scalar> record_scalars) {
  records.push_back({shape, static_cast<uint32_t>(operands.size()), static_cast<uint32_t>(scalars.size())});
  // They are few, so that one by one is the fastest.
  for (uint32_t operand : record_operands) operands.push_back(operand);
  for (const Scalar& scalar : record_scalars) scalars.push_back(scalar);
}

void RecordStretch::clear() {
  records.clear();
  operands.clear();
  scalars.clear();
}

bool NamedStretch::same_start(const NamedStretch& other, size_t count) const {
  if (count > named.size() || count > other.named.size() || prefix_hashes[count] != other.prefix_hashes[count])
    return false;
  // Equal hashes are no proof.
  size_t num_operands = 0;
  for (size_t i = 0; i < count; ++i) {
    if (named.records[i].shape != other.named.records[i].shape) return false;
    num_operands += named.records[i].shape.num_operands();
  }
  return std::equal(named.operands.begin(), named.operands.begin() + static_cast<ptrdiff_t>(num_operands),
                    other.named.operands.begin());
}

NamedStretch RecordNamer::name(const RecordStretch& slots, size_t first) {
  NamedStretch result;
  names_.clear();
  const auto name_of = [&](OperandId slot) {
    uint32_t name = names_.get(slot);
    if (name == SlotMap::kNone) {
      name = live_in_name(result.num_live_ins++);
      names_.set(slot, name);
    }
    return name;
  };
  uint64_t hash = 0;
  result.named.records.reserve(slots.size() - first);
  result.prefix_hashes.reserve(slots.size() - first + 1);
  RecordStretch& named = result.named;
  if (first < slots.size()) {
    named.operands.resize(slots.operands.size() - slots.records[first].first_operand);
    named.scalars.assign(slots.scalars.begin() + slots.records[first].first_scalar, slots.scalars.end());
  }
  uint32_t* next = named.operands.data();
  uint32_t next_scalar = 0;
  for (size_t i = first; i < slots.size(); ++i) {
    const RecordStretch::Record& record = slots.records[i];
    const std::span<const OperandId> releases = slots.releases(record);
    uint32_t* const operands = next;
    next = operands + record.shape.num_inputs + record.shape.num_outputs;  // releases come last, and are named first
    for (OperandId slot : releases) *next++ = name_of(slot);
    for (OperandId slot : releases) names_.erase(slot);
    uint32_t* at = operands;
    for (OperandId slot : slots.inputs(record)) *at++ = name_of(slot);
    for (OperandId slot : slots.outputs(record)) {
      const uint32_t name = born_name(result.num_born++);
      names_.set(slot, name);
      *at++ = name;
    }
    named.records.push_back({record.shape, static_cast<uint32_t>(operands - named.operands.data()), next_scalar});
    next_scalar += record.shape.num_scalars;
    result.prefix_hashes.push_back(hash);
    hash = mix(hash, record.shape.hash());
    for (const uint32_t* name = operands; name != next; ++name) hash = mix(hash, *name);
  }
  result.prefix_hashes.push_back(hash);
  return result;
}

}  // namespace dtorch
