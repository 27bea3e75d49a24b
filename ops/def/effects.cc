#include "ops/def/effects.h"

#include <set>

namespace dtorch {

namespace {

// As the registry: filled once, before dtorch::run.
std::set<const OperatorDef*>& session_operators() {
  static std::set<const OperatorDef*> operators;
  return operators;
}

}  // namespace

void add_session_operator(const OperatorDef& def) { session_operators().insert(&def); }

bool is_session_operator(const OperatorDef& def) { return session_operators().contains(&def); }

}  // namespace dtorch
