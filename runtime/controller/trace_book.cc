#include "runtime/controller/trace_book.h"

#include "runtime/controller/spec_table.h"

namespace dtorch {

void TraceBook::add(GraphId graph, Sequence sequence, const LogicalGraph& operators, const SpecTable& specs) {
  std::lock_guard lock(mutex_);
  if (num_operators_ + operators.operators.size() > kMaxOperators) return;
  num_operators_ += operators.operators.size();
  Piece& piece = pieces_[sequence];
  piece.graph = graph;
  piece.calls.reserve(operators.operators.size());
  for (size_t i = 0; i < operators.operators.size(); ++i) {
    const uint32_t spec = operators.operators[i].spec;
    piece.calls.push_back({spec, operators.source_lines[i]});
    if (!operators.operators[i].is_call()) continue;
    const auto [at, is_new] = specs_.try_emplace(key(graph, spec));
    if (is_new) at->second = {specs.op_name(spec), specs.describe_values(spec)};
  }
}

TraceBook::Named TraceBook::find(const Place& place) const {
  std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(place.sequence);
  if (piece == pieces_.end() || place.op_index >= piece->second.calls.size()) return {};
  const Call& call = piece->second.calls[place.op_index];
  const auto spec = specs_.find(key(piece->second.graph, call.spec));
  if (spec == specs_.end()) return {};
  return {spec->second.name, spec->second.values, call.where};
}

}  // namespace dtorch
