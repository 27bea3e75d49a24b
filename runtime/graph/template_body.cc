// Where the lives of a template's values follow from its calls; see templates.h.
#include <algorithm>
#include <string>

#include "runtime/graph/templates.h"

namespace dtorch {

namespace {

[[noreturn]] void fail(size_t call, const char* what) {
  throw DecodeError("call " + std::to_string(call) + " of a template " + what);
}

}  // namespace

TemplateBody::TemplateBody(LogicalGraph calls, uint32_t num_live_ins)
    : calls_(std::move(calls)), num_live_ins_(num_live_ins) {
  size_t num_names = num_live_ins;
  for (OperandId operand : calls_.operands) num_names = std::max<size_t>(num_names, size_t{operand & kMaxOperand} + 1);
  // Names are dense, so that memory stays in proportion to the calls.
  if (num_names > calls_.operands.size()) throw DecodeError("a template has names that no call uses");
  births_.assign(num_names, kNever);
  deaths_.assign(num_names, kNever);
  std::vector<bool> used(num_live_ins, false);
  const uint32_t count = num_calls();
  externals_before_.reserve(size_t{count} + 1);
  // Which values outlive the template is known at its end only; their places among the externals are taken before.
  for (uint32_t i = 0; i < count; ++i) {
    const Operator& op = calls_.operators[i];
    externals_before_.push_back(static_cast<uint32_t>(externals_.size()));
    const bool releases = op.spec == kReleaseSpec;
    const std::span<const OperandId> inputs = calls_.inputs(op);
    for (OperandId operand : inputs) {
      const OperandId name = operand & kMaxOperand;
      if (is_live_in(name)) {
        if (!used[name]) externals_.push_back(name);
        used[name] = true;
      } else if (births_[name] == kNever) {
        fail(i, "uses a value that isn't born");
      }
      if (deaths_[name] != kNever) fail(i, "uses a value after its release");
    }
    for (OperandId operand : inputs) {
      if (releases || (operand & kLastUse) != 0) deaths_[operand & kMaxOperand] = i;
    }
    for (OperandId name : calls_.outputs(op)) {
      if (name > kMaxOperand || is_live_in(name) || births_[name] != kNever) fail(i, "makes a value that exists");
      births_[name] = i;
      externals_.push_back(name);
    }
  }
  externals_before_.push_back(static_cast<uint32_t>(externals_.size()));
  // Takes the temporaries out.
  size_t kept = 0;
  size_t at = 0;
  for (uint32_t i = 0; i <= count; ++i) {
    const size_t end = externals_before_[i];
    for (; at < end; ++at) {
      const OperandId name = externals_[at];
      if (is_live_in(name) || outlives(name)) externals_[kept++] = name;
    }
    externals_before_[i] = static_cast<uint32_t>(kept);
  }
  externals_.resize(kept);
}

std::vector<OperandId> TemplateBody::temporaries_alive(uint32_t end) const {
  std::vector<OperandId> names;
  for (OperandId name = num_live_ins_; name < num_names(); ++name) {
    if (births_[name] < end && deaths_[name] >= end && !outlives(name)) names.push_back(name);
  }
  return names;
}

bool VaryingScalars::contains(uint32_t scalar) const {
  return std::binary_search(scalars_.begin(), scalars_.end(), scalar);
}

void VaryingScalars::add(uint32_t scalar) {
  const auto at = std::lower_bound(scalars_.begin(), scalars_.end(), scalar);
  if (at == scalars_.end() || *at != scalar) scalars_.insert(at, scalar);
}

std::span<const uint32_t> VaryingScalars::range(uint32_t first, uint32_t end) const {
  const auto from = std::lower_bound(scalars_.begin(), scalars_.end(), first);
  return {from, std::lower_bound(from, scalars_.end(), end)};
}

}  // namespace dtorch
