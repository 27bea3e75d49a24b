#include "runtime/controller/template_instance.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace dtorch {

namespace {

uint64_t head_word(const RecordCell& cell, size_t i) {
  uint64_t word = 0;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(&cell) + i * sizeof word, sizeof word);
  return word;
}

// Whether two records are the same but for their operands. One branch.
inline bool same_heads(const RecordCell& a, const RecordCell& b) {
  static_assert(offsetof(RecordCell, operands) == 5 * sizeof(uint64_t));
  const auto differ = [&](size_t i) { return head_word(a, i) ^ head_word(b, i); };
  return (differ(0) | differ(1) | differ(2) | differ(3) | differ(4)) == 0;
}

// Whether the operands have the slots that their names have. An empty place holds 0 on both sides.
inline bool same_operands(const OperandId* slot_of, const RecordCell& names, const RecordCell& slots) {
  static_assert(kInlineOperands == 6);
  const auto differ = [&](size_t k) { return slot_of[names.operands[k]] ^ slots.operands[k]; };
  return (differ(0) | differ(1) | differ(2) | differ(3) | differ(4) | differ(5)) == 0;
}

}  // namespace

void TemplateInstance::begin(TemplatePtr of) {
  template_ = std::move(of);
  matched_ = sent_ = sendable_ = noted_ = 0;
  next_live_in_ = live_in_name(0);
  scalars_.clear();
  names_.clear();
  make_room();
  // What is born gets its slot before anybody asks.
  for (size_t name = next_live_in_; name < live_in_name(template_->records.num_live_ins); name += 2)
    slots_[name] = kNoSlot;
}

void TemplateInstance::make_room() {
  const size_t limit = template_->records.name_limit();
  if (slots_.size() <= limit) slots_.resize(limit + 1, kNoSlot);
  slots_[limit] = 0;
}

// Nobody asks for names of slots before a live-in comes.
void TemplateInstance::note_births() {
  const RecordStretch& named = template_->records.named;
  for (; noted_ < matched_; ++noted_) {
    for (uint32_t name : named.outputs(named.records[noted_])) names_.set(slots_[name], name);
  }
}

// The only place where a name gets a slot that the client chose earlier. The slot mustn't belong to a value that the
// instance knows by another name.
bool TemplateInstance::use_first(uint32_t name, OperandId slot) {
  if (name != next_live_in_) return false;
  note_births();
  const uint32_t other = names_.get(slot);
  if (other != SlotMap::kNone && template_->deaths[other] >= matched_) return false;
  slots_[name] = slot;
  names_.set(slot, name);
  next_live_in_ += 2;
  return true;
}

void TemplateInstance::forget_live_ins(uint32_t from) {
  for (; next_live_in_ != from; next_live_in_ -= 2) {
    names_.erase(slots_[next_live_in_ - 2]);
    slots_[next_live_in_ - 2] = kNoSlot;
  }
}

// Of operands that aren't all what the instance knows of them: live-ins that come for the first time, or others.
// counts: a RecordShape or RecordCell.
template <class Counts>
[[gnu::noinline]] bool TemplateInstance::match_new_operands(const Counts& counts, const uint32_t* names,
                                                            const OperandId* slots) {
  const uint32_t first_new = next_live_in_;
  const size_t first_output = counts.num_inputs;
  const size_t first_release = first_output + counts.num_outputs;
  const auto same = [&](size_t from, size_t to) {
    for (size_t k = from; k < to; ++k) {
      if (slots_[names[k]] != slots[k] && !use_first(names[k], slots[k])) return false;
    }
    return true;
  };
  if (same(first_release, first_release + counts.num_releases) && same(0, first_output)) return true;
  forget_live_ins(first_new);
  return false;
}

bool TemplateInstance::match(const RecordShape& shape, const RecordReader& record) {
  const RecordStretch& named = template_->records.named;
  if (matched_ == named.size()) return false;
  const RecordStretch::Record& expected = named.records[matched_];
  if (expected.shape != shape) return false;
  const uint32_t* const names = named.operands.data() + expected.first_operand;
  const OperandId* const slots = record.inputs().data();  // all of the record's operands
  OperandId* const slot_of = slots_.data();
  const size_t first_output = shape.num_inputs;
  const size_t first_release = first_output + shape.num_outputs;
  const size_t end = first_release + shape.num_releases;
  // Nearly always all are known, so one branch for all.
  OperandId differs = 0;
  for (size_t k = 0; k < first_output; ++k) differs |= slot_of[names[k]] ^ slots[k];
  for (size_t k = first_release; k < end; ++k) differs |= slot_of[names[k]] ^ slots[k];
  if (differs != 0 && !match_new_operands(shape, names, slots)) return false;
  for (size_t k = first_output; k < first_release; ++k) slot_of[names[k]] = slots[k];
  if (shape.num_scalars != 0) {
    const std::span<const Scalar> scalars = record.scalars();
    scalars_.insert(scalars_.end(), scalars.begin(), scalars.end());
  }
  ++matched_;
  return true;
}

uint32_t TemplateInstance::match_cells(SpscRing<Cell>& ring, size_t most) {
  const size_t count = std::min({ring.readable(), most, template_->size() - matched_});
  const RecordCell* expected = template_->cells.data() + matched_;
  OperandId* const slot_of = slots_.data();
  size_t num_taken = 0;
  for (; num_taken < count; ++num_taken, ++expected) {
    const RecordCell& cell = ring.peek(num_taken).head;
    if (!same_heads(*expected, cell)) break;
    // What the record gives birth to has the slots that it says; should the record not match after all, nobody looks.
    const OperandId* const births = expected->operands + cell.num_inputs;
    for (size_t k = 0; k < cell.num_outputs; ++k) slot_of[births[k]] = cell.operands[cell.num_inputs + k];
    if (same_operands(slot_of, *expected, cell)) [[likely]]
      continue;
    matched_ += static_cast<uint32_t>(num_taken);
    const bool matches = match_new_operands(cell, expected->operands, cell.operands);
    matched_ -= static_cast<uint32_t>(num_taken);
    if (!matches) break;
  }
  if (num_taken == 0) return 0;
  matched_ += static_cast<uint32_t>(num_taken);
  ring.consume(num_taken);
  return static_cast<uint32_t>(num_taken);
}

void TemplateInstance::switch_to(TemplatePtr other) {
  DTORCH_CHECK(sent_ == 0, "an instance of a template was sent already");
  template_ = std::move(other);
  sendable_ = 0;
  const size_t live_in_limit = live_in_name(template_->records.num_live_ins);
  make_room();
  // The other's limit may be the name of one of these.
  for (size_t name = next_live_in_; name < live_in_limit; name += 2) slots_[name] = kNoSlot;
}

uint32_t TemplateInstance::sendable() {
  if (!complete() && matched_ <= template_->shared_start) return sendable_;
  const std::vector<uint32_t>& needed = template_->records_needed;
  while (sendable_ < needed.size() && needed[sendable_] <= matched_) ++sendable_;
  return sendable_;
}

ReplayDraft TemplateInstance::draft(uint32_t end) const {
  const Template& t = *template_;
  const TemplateBody& body = *t.body;
  ReplayDraft result;
  result.of = template_;
  result.id = t.id;
  result.first_call = sent_;
  result.end_call = end;
  for (OperandId name : body.externals(sent_, end)) result.operands.push_back(slot_of_body(name));
  const uint32_t first_scalar = body.scalars_before(sent_);
  const uint32_t end_scalar = body.scalars_before(end);
  for (uint32_t k = first_scalar; k < end_scalar; ++k) result.all_scalars.push_back(scalars_[t.record_scalars[k]]);
  // What no record so far has used has no slot yet, or one of an instance before; no call before `end` has it.
  result.slots.resize(body.num_names());
  for (OperandId name = 0; name < body.num_names(); ++name) result.slots[name] = slot_of_body(name);
  return result;
}

ReplayDraft TemplateInstance::send(uint32_t end) {
  ReplayDraft result = draft(end);
  Template& t = *template_;
  result.ends = end == t.body->num_calls();
  const uint32_t first_scalar = t.body->scalars_before(sent_);
  const std::vector<Scalar>& initial = t.body->calls().scalars;
  const std::vector<Scalar>& scalars = result.all_scalars;
  for (uint32_t k = 0; k < scalars.size(); ++k) {
    if (scalars[k].bits == initial[first_scalar + k].bits || t.varying.contains(first_scalar + k)) continue;
    t.varying.add(first_scalar + k);
    result.new_varying.push_back(first_scalar + k);
  }
  for (uint32_t k : t.varying.range(first_scalar, t.body->scalars_before(end)))
    result.scalars.push_back(scalars[k - first_scalar]);
  sent_ = end;
  return result;
}

ReplayDraft TemplateInstance::abandon() {
  ReplayDraft result = draft(sent_);
  result.ends = true;
  for (OperandId name : template_->body->temporaries_alive(sent_)) result.operands.push_back(slot_of_body(name));
  return result;
}

uint32_t TemplateInstance::first_unsent_record() const {
  if (sent_ == 0) return 0;
  const std::vector<uint32_t>& records = template_->record_of_call;
  const uint32_t last = records[sent_ - 1];
  // A record's releases and its operator are two calls; doing the releases again changes nothing.
  const uint32_t next = sent_ < records.size() && records[sent_] == last ? last : last + 1;
  return std::max(next, template_->records_covered[sent_]);
}

void TemplateInstance::copy_records(RecordStretch& to) const {
  const RecordStretch& named = template_->records.named;
  std::vector<OperandId> slots;
  for (uint32_t i = 0; i < matched_; ++i) {
    const RecordStretch::Record& record = named.records[i];
    const uint32_t* names = named.operands.data() + record.first_operand;
    slots.clear();
    for (size_t k = 0; k < record.shape.num_operands(); ++k) slots.push_back(slots_[names[k]]);
    to.append(record.shape, slots, std::span(scalars_).subspan(record.first_scalar, record.shape.num_scalars));
  }
}

}  // namespace dtorch
