#include "runtime/controller/template_instance.h"

#include <algorithm>

namespace dtorch {

void TemplateInstance::begin(TemplatePtr of) {
  template_ = std::move(of);
  matched_ = sent_ = sendable_ = 0;
  next_live_in_ = live_in_name(0);
  next_born_ = born_name(0);
  slots_.clear();
  scalars_.clear();
  names_.clear();
  make_room();
}

void TemplateInstance::make_room() { slots_.resize(std::max(slots_.size(), template_->records.name_limit()), kNoSlot); }

// The only place where a name gets a slot that the client chose earlier. The slot mustn't belong to a value that the
// instance knows by another name.
bool TemplateInstance::use_first(uint32_t name, OperandId slot) {
  if (name != next_live_in_) return false;
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
bool TemplateInstance::match_new_operands(const RecordShape& shape, const uint32_t* names, const OperandId* slots) {
  const uint32_t first_new = next_live_in_;
  const size_t first_output = shape.num_inputs;
  const size_t first_release = first_output + shape.num_outputs;
  const auto same = [&](size_t from, size_t to) {
    for (size_t k = from; k < to; ++k) {
      if (slots_[names[k]] != slots[k] && !use_first(names[k], slots[k])) return false;
    }
    return true;
  };
  if (same(first_release, shape.num_operands()) && same(0, first_output)) return true;
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
  for (size_t k = first_output; k < first_release; ++k, next_born_ += 2) {
    slot_of[next_born_] = slots[k];
    names_.set(slots[k], next_born_);
  }
  if (shape.num_scalars != 0) {
    const std::span<const Scalar> scalars = record.scalars();
    scalars_.insert(scalars_.end(), scalars.begin(), scalars.end());
  }
  ++matched_;
  return true;
}

void TemplateInstance::switch_to(TemplatePtr other) {
  DTORCH_CHECK(sent_ == 0, "an instance of a template was sent already");
  template_ = std::move(other);
  sendable_ = 0;
  make_room();
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
  // What no record so far has used has no slot yet; no call before `end` has it.
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
