// The templates of one Graph: bounded in number and size; the one that wasn't used for longest makes room. Also which
// stretches have been seen once. Used by one executor's thread.
#pragma once
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "runtime/controller/template.h"

namespace dtorch {

class TemplateStore {
 public:
  // Over all templates.
  static constexpr size_t kMaxRecords = size_t{1} << 17;
  static constexpr size_t kMaxSeen = 4096;
  // Templates that were kept at their first appearance and have never been replayed.
  static constexpr int32_t kMaxEarly = 8;

  explicit TemplateStore(size_t max_templates = kMaxTemplates, size_t max_records = kMaxRecords)
      : max_records_(max_records), places_(max_templates) {}

  enum class Appearance : uint8_t { kFirst, kAgain, kRefused };
  // Notes a stretch.
  Appearance note(const NamedStretch& stretch);
  // No template can be made of it: it isn't worth trying again.
  void refuse(uint64_t stretch_hash) { seen_[stretch_hash] = Appearance::kRefused; }
  // The template that is this stretch; null when there is none.
  TemplatePtr find(const NamedStretch& stretch) const;
  // Gives it a number, and takes away what it has no room beside. False when it is too large by itself.
  bool add(const TemplatePtr& added);
  // The other templates whose first `count` records are those of `of` (null: any; count is 0) and whose next one has
  // this shape, the last used first.
  std::vector<TemplatePtr> candidates(const Template* of, size_t count, const RecordShape& next) const;
  void use(Template& used);
  // A subgraph of operators that are all known looks like a repetition, and may be kept at its first appearance, while
  // that proves right.
  bool may_keep_early() const { return num_early_ < kMaxEarly; }
  void kept_early(Template& kept);
  size_t size() const { return size_; }
  size_t num_records() const { return num_records_; }

 private:
  void remove(TemplatePtr& place);
  const size_t max_records_;
  std::vector<TemplatePtr> places_;  // by number
  size_t size_ = 0;
  size_t num_records_ = 0;
  uint64_t clock_ = 0;
  int32_t num_early_ = 0;
  std::unordered_map<uint64_t, Appearance> seen_;  // by hash; kAgain: once or more
  std::deque<uint64_t> seen_order_;
};

}  // namespace dtorch
