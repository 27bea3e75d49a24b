#include "runtime/controller/template_store.h"

#include <algorithm>

namespace dtorch {

TemplateStore::Appearance TemplateStore::note(const NamedStretch& stretch) {
  const uint64_t hash = stretch.prefix_hashes.back();
  const auto [at, is_new] = seen_.try_emplace(hash, Appearance::kAgain);
  if (!is_new) return at->second;
  seen_order_.push_back(hash);
  if (seen_order_.size() > kMaxSeen) {
    seen_.erase(seen_order_.front());
    seen_order_.pop_front();
  }
  return Appearance::kFirst;
}

void TemplateStore::use(Template& used) {
  used.used_at = ++clock_;
  if (!used.early) return;
  used.early = false;
  --num_early_;
}

void TemplateStore::kept_early(Template& kept) {
  kept.early = true;
  ++num_early_;
}

TemplatePtr TemplateStore::find(const NamedStretch& stretch) const {
  for (const TemplatePtr& place : places_) {
    if (place && place->size() == stretch.named.size() && place->records.same_start(stretch, place->size()))
      return place;
  }
  return nullptr;
}

void TemplateStore::remove(TemplatePtr& place) {
  --size_;
  num_records_ -= place->size();
  place->removed = true;
  place = nullptr;
}

bool TemplateStore::add(const TemplatePtr& added) {
  if (added->size() > max_records_) return false;
  const auto older = [](const TemplatePtr& a, const TemplatePtr& b) {
    return a && (!b || a->used_at < b->used_at);  // empty places last
  };
  while (num_records_ + added->size() > max_records_) remove(*std::min_element(places_.begin(), places_.end(), older));
  auto place = std::find(places_.begin(), places_.end(), nullptr);
  if (place == places_.end()) {
    place = std::min_element(places_.begin(), places_.end(), older);
    remove(*place);
  }
  for (const TemplatePtr& other : places_) {
    if (!other) continue;
    // The hashes say where two part, but for a collision, which costs a little latency.
    const size_t most = std::min(other->size(), added->size());
    size_t shared = 0;
    while (shared < most && other->records.prefix_hashes[shared + 1] == added->records.prefix_hashes[shared + 1])
      ++shared;
    other->shared_start = std::max(other->shared_start, shared);
    added->shared_start = std::max(added->shared_start, shared);
  }
  added->id = static_cast<TemplateId>(place - places_.begin());
  *place = added;
  ++size_;
  num_records_ += added->size();
  use(*added);
  return true;
}

std::vector<TemplatePtr> TemplateStore::candidates(const Template* of, size_t count, const RecordShape& next) const {
  std::vector<TemplatePtr> found;
  for (const TemplatePtr& place : places_) {
    if (place && place.get() != of && place->size() > count && place->records.named.records[count].shape == next &&
        (of == nullptr || place->records.same_start(of->records, count)))
      found.push_back(place);
  }
  std::sort(found.begin(), found.end(),
            [](const TemplatePtr& a, const TemplatePtr& b) { return a->used_at > b->used_at; });
  return found;
}

}  // namespace dtorch
