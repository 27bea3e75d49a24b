// An instance of a template under way: compares the records that come with the template's, remembers which slots its
// names have this time, and says which calls may be sent. Used by one executor's thread.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/controller/template.h"

namespace dtorch {

class TemplateInstance {
 public:
  void begin(TemplatePtr of);
  // Forgets it.
  void end() { template_ = nullptr; }
  bool active() const { return template_ != nullptr; }
  const TemplatePtr& of() const { return template_; }

  // Takes in the next record when it is the template's next; else changes nothing.
  bool match(const RecordShape& shape, const RecordReader& record);
  // The same for as many records as lie in the ring, at most `most` and each in one cell, as they lie there; consumes
  // them. Their number; 0: the next one has to be read.
  uint32_t match_cells(SpscRing<Cell>& ring, size_t most);
  // Goes on as another template with the same records so far. Only before anything was sent.
  void switch_to(TemplatePtr other);
  uint32_t num_matched() const { return matched_; }
  bool complete() const { return matched_ == template_->size(); }

  // --- sending
  bool anything_sent() const { return sent_ != 0; }
  uint32_t num_sent() const { return sent_; }
  // The end of the calls that may be sent now.
  uint32_t sendable();
  // The calls from the last ones sent to `end`; the scalars that differ for the first time vary from now on.
  ReplayDraft send(uint32_t end);
  // Nothing more of it will come.
  ReplayDraft abandon();

  // --- going loose
  // The records from this one on have effects that no sent call has had.
  uint32_t first_unsent_record() const;
  // The matched records with this instance's slots and scalars.
  void copy_records(RecordStretch& to) const;

 private:
  static constexpr OperandId kNoSlot = 0xFFFFFFFFu;
  void make_room();
  template <class Counts>
  bool match_new_operands(const Counts& counts, const uint32_t* names, const OperandId* slots);
  bool use_first(uint32_t name, OperandId slot);
  void note_births();
  void forget_live_ins(uint32_t from);
  OperandId slot_of_body(OperandId name) const { return slots_[template_->record_names[name]]; }
  ReplayDraft draft(uint32_t end) const;

  TemplatePtr template_;
  uint32_t matched_ = 0;          // records
  uint32_t sent_ = 0;             // calls
  uint32_t sendable_ = 0;         // calls
  uint32_t next_live_in_ = 0;     // a name
  std::vector<OperandId> slots_;  // by the records' name; kNoSlot: none yet. 0 at the template's name_limit()
  // By slot: the name that had it last, as far as the first noted_ records go; live-ins that came later as well.
  SlotMap names_;
  uint32_t noted_ = 0;
  std::vector<Scalar> scalars_;  // of the matched records
};

}  // namespace dtorch
