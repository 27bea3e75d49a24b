// How a record lies in the cells of a Graph's ring (link.h): the client writes with write_record, the executor reads
// with RecordReader. Words in order: inputs, outputs, released operands (the first kInlineOperands of them in the head
// cell, the others packed in the following cells), then scalars, 8-byte aligned. Unused bytes are 0, so that equal
// records are equal as bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "runtime/base/intrusive.h"
#include "runtime/client/link.h"

namespace dtorch {

inline constexpr size_t kOperandsInCell = sizeof(ContinuationCell) / sizeof(OperandId);
inline constexpr size_t kWordsInCell = sizeof(ContinuationCell) / sizeof(uint64_t);

struct RecordContent {
  RecordKind kind = RecordKind::kOperator;
  const OperatorSpec* spec = nullptr;  // null: the record only releases, flushes or closes
  RecordPayload* payload = nullptr;    // null, or one reference that goes to the consumer
  SourceLine where = {};
  std::span<const OperandId> inputs = {};
  std::span<const OperandId> outputs = {};
  std::span<const OperandId> releases = {};  // happen before the operator
  std::span<const Scalar> scalars = {};
};

inline size_t record_cells(size_t num_operands, size_t num_scalars) {
  size_t spilled = num_operands > kInlineOperands ? num_operands - kInlineOperands : 0;
  size_t words = (spilled + 1) / 2 + num_scalars;
  return 1 + (words + kWordsInCell - 1) / kWordsInCell;
}

// Producer. Blocks while the ring is full. False (and nothing written, the payload still the caller's) when the
// consumer has closed it.
inline bool write_record(SpscRing<Cell>& ring, const RecordContent& content) {
  size_t num_operands = content.inputs.size() + content.outputs.size() + content.releases.size();
  size_t num_cells = record_cells(num_operands, content.scalars.size());
  if (!ring.reserve(num_cells)) return false;
  RecordCell head{};
  head.kind = content.kind;
  head.num_scalars = static_cast<uint8_t>(content.scalars.size());
  head.num_inputs = static_cast<uint16_t>(content.inputs.size());
  head.num_outputs = static_cast<uint16_t>(content.outputs.size());
  head.num_releases = static_cast<uint16_t>(content.releases.size());
  head.line = content.where.line;
  head.num_cells = static_cast<uint32_t>(num_cells);
  head.file = content.where.file;
  head.spec = content.spec;
  head.payload = content.payload;
  for (size_t i = 1; i < num_cells; ++i) ring.reserved(i).more = ContinuationCell{};
  size_t at = 0;
  for (std::span<const OperandId> list : {content.inputs, content.outputs, content.releases}) {
    for (OperandId operand : list) {
      if (at < kInlineOperands) {
        head.operands[at] = operand;
      } else {
        size_t spilled = at - kInlineOperands;
        uint64_t& word = ring.reserved(1 + spilled / kOperandsInCell).more.words[spilled % kOperandsInCell / 2];
        word |= static_cast<uint64_t>(operand) << (spilled % 2 == 0 ? 0 : 32);
      }
      ++at;
    }
  }
  size_t word = at > kInlineOperands ? (at - kInlineOperands + 1) / 2 : 0;
  for (const Scalar& scalar : content.scalars) {
    ring.reserved(1 + word / kWordsInCell).more.words[word % kWordsInCell] = scalar.bits;
    ++word;
  }
  ring.reserved(0).head = head;
  ring.publish(num_cells);
  return true;
}

// Consumer. One reader a ring; used by the ring's consumer thread.
//   RecordReader reader;
//   while (reader.read(ring)) { ... reader.inputs() ...; reader.consume(ring); }
class RecordReader {
 public:
  // Looks at the record at the front of the ring; false when there is none. What it gives is valid until consume().
  bool read(const SpscRing<Cell>& ring) {
    if (ring.readable() == 0) return false;
    head_ = &ring.peek(0).head;
    size_t num_operands = size_t{head_->num_inputs} + head_->num_outputs + head_->num_releases;
    operands_ = head_->operands;
    if (num_operands > kInlineOperands) {
      spilled_.assign(head_->operands, head_->operands + kInlineOperands);
      for (size_t i = 0; i + kInlineOperands < num_operands; ++i) {
        uint64_t word = ring.peek(1 + i / kOperandsInCell).more.words[i % kOperandsInCell / 2];
        spilled_.push_back(static_cast<OperandId>(word >> (i % 2 == 0 ? 0 : 32)));
      }
      operands_ = spilled_.data();
    }
    if (head_->num_scalars != 0 || !scalars_.empty()) read_scalars(ring, num_operands);
    return true;
  }
  RecordKind kind() const { return head_->kind; }
  const OperatorSpec* spec() const { return head_->spec; }
  SourceLine where() const { return {head_->file, head_->line}; }
  std::span<const OperandId> inputs() const { return {operands_, head_->num_inputs}; }
  std::span<const OperandId> outputs() const { return {operands_ + head_->num_inputs, head_->num_outputs}; }
  std::span<const OperandId> releases() const {
    return {operands_ + head_->num_inputs + head_->num_outputs, head_->num_releases};
  }
  std::span<const Scalar> scalars() const { return scalars_; }
  size_t num_cells() const { return head_->num_cells; }
  bool has_payload() const { return head_->payload != nullptr; }
  // The record's payload with its reference; null when there is none. Call it once a record (a payload that isn't taken
  // leaks).
  IntrusivePtr<RecordPayload> take_payload() const {
    IntrusivePtr<RecordPayload> payload(head_->payload);
    if (payload) payload->drop_ref();  // the ring's own reference; the handle holds another
    return payload;
  }
  // Gives the record's cells back to the producer.
  void consume(SpscRing<Cell>& ring) { ring.consume(head_->num_cells); }

 private:
  void read_scalars(const SpscRing<Cell>& ring, size_t num_operands) {
    scalars_.clear();
    size_t word = num_operands > kInlineOperands ? (num_operands - kInlineOperands + 1) / 2 : 0;
    for (size_t i = 0; i < head_->num_scalars; ++i, ++word) {
      scalars_.push_back({ring.peek(1 + word / kWordsInCell).more.words[word % kWordsInCell]});
    }
  }

  const RecordCell* head_ = nullptr;
  const OperandId* operands_ = nullptr;
  std::vector<OperandId> spilled_;
  std::vector<Scalar> scalars_;
};

}  // namespace dtorch
