#include "ops/def/operator_def.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <string>

namespace dtorch {

bool KernelContext::is_partial_owner(size_t i) const {
  const Layout& layout = local_.spec->outputs[i]->layout;
  Shape coordinate = layout.mesh().coordinate_of_index(layout.mesh().index_of(local_.device));
  for (int64_t axis = 0; axis < layout.mesh().num_axes(); ++axis) {
    if (layout.placement(axis).is_partial() && coordinate[axis] != 0) return false;
  }
  return true;
}

namespace {

// The name before the signature's parenthesis ("max/min": a part of both); the operator's own where the signature is
// words. Lives as long as the process.
const char* user_name_of(const OperatorDef& def) {
  const std::string_view signature = def.signature;
  const size_t end = signature.find('(');
  const std::string_view name = signature.substr(0, end);
  const bool is_name =
      end != std::string_view::npos && end > 0 && std::ranges::all_of(name, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' || c == '.' || c == '/';
      });
  if (!is_name || name == def.name) return def.name;
  static std::deque<std::string> names;
  return names.emplace_back(name).c_str();
}

}  // namespace

OperatorRegistry& OperatorRegistry::global() {
  static OperatorRegistry registry;
  return registry;
}

void OperatorRegistry::add(OperatorDef& def) {
  if (find(def.name)) throw UserError(std::string("an operator named '") + def.name + "' is registered already");
  DTORCH_CHECK(defs_.size() < 0xFFFF, "too many operators");
  def.user_name = user_name_of(def);
  def.index = static_cast<uint16_t>(defs_.size());
  defs_.push_back(&def);
}

const OperatorDef& OperatorRegistry::at(uint16_t index) const {
  if (index >= defs_.size()) {
    throw DecodeError("operator number " + std::to_string(index) + ", known are " + std::to_string(defs_.size()));
  }
  return *defs_[index];
}

const OperatorDef* OperatorRegistry::find(std::string_view name) const {
  for (const OperatorDef* def : defs_) {
    if (name == def->name) return def;
  }
  return nullptr;
}

uint64_t OperatorRegistry::hash() const {
  std::string names;
  for (const OperatorDef* def : defs_) names += std::string(def->name) + "\n";
  return XXH3_64bits(names.data(), names.size());
}

}  // namespace dtorch
