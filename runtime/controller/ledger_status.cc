// Ledger: what is under way, in words, for the watchdog and for whoever asks.
#include "runtime/controller/ledger.h"

#include <algorithm>

namespace dtorch {

LedgerEntry* Ledger::oldest_owed_entry(int32_t branch) const {
  for (const auto& entry : entries_) {
    if (entry != nullptr && !entry->acknowledged[static_cast<size_t>(branch)]) return entry.get();
  }
  return nullptr;
}

std::vector<Ledger::Debt> Ledger::debts(Clock::time_point now) const {
  std::lock_guard lock(mutex_);
  std::vector<Debt> debts;
  std::vector<const LedgerEntry*> entries(static_cast<size_t>(num_nodes_));  // of the first nodes, which come first
  for (int32_t node : route_.tree.nodes()) {
    const int32_t branch = route_.tree.branch_of(node);
    if (branch == node) entries[static_cast<size_t>(branch)] = oldest_owed_entry(branch);
    const LedgerEntry* entry = entries[static_cast<size_t>(branch)];
    if (entry == nullptr) continue;
    debts.push_back({node, now - std::max(heard_[static_cast<size_t>(branch)], entry->sent_at)});
  }
  return debts;
}

LedgerEntry* Ledger::under_way(const Place& place) const {
  const Sequence index = place.sequence - first_;
  if (place.sequence < first_ || index >= entries_.size() || entries_[index] == nullptr) return nullptr;
  LedgerEntry* entry = entries_[index].get();
  return place.op_index < entry->calls().operators.size() ? entry : nullptr;
}

std::string Ledger::describe(const Place& place) const {
  std::lock_guard lock(mutex_);
  LedgerEntry* entry = under_way(place);
  if (entry == nullptr) return "";
  const Operator& op = entry->calls().operators[place.op_index];
  const SourceLine& where = entry->calls().source_lines[place.op_index];
  std::string text = std::string("[") + entry->stream->specs.op_name(op.spec) + "] #" + std::to_string(place.sequence) +
                     "." + std::to_string(place.op_index);
  const std::string values = entry->stream->specs.describe_values(op.spec);
  if (!values.empty()) text += ": " + values;
  if (where.line != 0) text += ", called at " + where.str();
  return text;
}

std::string Ledger::name_of(const Place& place) const {
  std::lock_guard lock(mutex_);
  LedgerEntry* entry = under_way(place);
  if (entry == nullptr) return "";
  const SourceLine& where = entry->calls().source_lines[place.op_index];
  return std::string("[") + entry->stream->specs.op_name(entry->calls().operators[place.op_index].spec) + "]" +
         (where.line == 0 ? "" : " called at " + where.str());
}

bool Ledger::is_under_way(const Place& place) const {
  std::lock_guard lock(mutex_);
  const Sequence index = place.sequence - first_;
  return place.sequence >= first_ && index < entries_.size() && entries_[index] != nullptr;
}

bool Ledger::is_busy() const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(entries_, [](const auto& entry) { return entry != nullptr; });
}

std::string Ledger::oldest_owed(int32_t node) const {
  std::lock_guard lock(mutex_);
  const int32_t branch = route_.tree.branch_of(node);
  LedgerEntry* entry = oldest_owed_entry(branch);
  if (entry == nullptr) return "";
  const std::string owes = route_.tree.children(branch).empty()
                               ? "it owes "
                               : "node " + std::to_string(branch) + ", or one that it passes messages on to, owes ";
  const LogicalGraph& graph = entry->calls();
  for (size_t i = 0; i < graph.operators.size(); ++i) {
    if (!graph.operators[i].is_call()) continue;
    std::string text = owes + "[" + entry->stream->specs.op_name(graph.operators[i].spec) + "]";
    if (graph.source_lines[i].line != 0) text += " called at " + graph.source_lines[i].str();
    return text + ", " + std::to_string(graph.operators.size() - i - 1) + " more after it";
  }
  return owes + "piece " + std::to_string(entry->sequence);
}

StatusNames Ledger::status_names() const {
  return {.operator_at = [this](const Place& place) { return describe(place); },
          .owed_by = [this](int32_t node) { return oldest_owed(node); }};
}

}  // namespace dtorch
