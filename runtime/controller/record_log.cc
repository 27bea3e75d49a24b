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
  operands.insert(operands.end(), record_operands.begin(), record_operands.end());
  scalars.insert(scalars.end(), record_scalars.begin(), record_scalars.end());
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
  std::vector<uint32_t> operands;
  for (size_t i = first; i < slots.size(); ++i) {
    const RecordStretch::Record& record = slots.records[i];
    const std::span<const OperandId> releases = slots.releases(record);
    operands.assign(record.shape.num_operands(), 0);
    size_t at = size_t{record.shape.num_inputs} + record.shape.num_outputs;
    for (OperandId slot : releases) operands[at++] = name_of(slot);
    for (OperandId slot : releases) names_.erase(slot);
    at = 0;
    for (OperandId slot : slots.inputs(record)) operands[at++] = name_of(slot);
    for (OperandId slot : slots.outputs(record)) {
      const uint32_t name = born_name(result.num_born++);
      names_.set(slot, name);
      operands[at++] = name;
    }
    result.named.append(record.shape, operands, slots.scalars_of(record));
    result.prefix_hashes.push_back(hash);
    hash = mix(hash, record.shape.hash());
    for (uint32_t name : operands) hash = mix(hash, name);
  }
  result.prefix_hashes.push_back(hash);
  return result;
}

}  // namespace dtorch
