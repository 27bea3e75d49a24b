// The pass that computes nothing twice; see pass.h.
#include <algorithm>

#include "runtime/controller/passes/hash_index.h"
#include "runtime/controller/passes/value_numbers.h"

namespace dtorch {

namespace {

class RepeatedOperatorsPass final : public Pass {
 public:
  const char* name() const override { return "repeated_operators"; }

  void run(LogicalGraph& graph, const PassContext& context) override {
    numbers_.clear();
    calls_.clear(graph.operators.size());
    first_of_spec_.clear();
    number_of_operand_.resize(graph.operands.size());
    replacements_.clear();
    for (uint32_t i = 0; i < graph.operators.size(); ++i) {
      const Operator& op = graph.operators[i];
      if (op.spec == kReleaseSpec) {
        for (OperandId slot : std::as_const(graph).inputs(op)) numbers_.release(slot);
        continue;
      }
      for (uint32_t k = 0; k < op.num_inputs; ++k)
        number_of_operand_[op.first_operand + k] = numbers_.of(graph.operands[op.first_operand + k]);
      const uint32_t first = op.is_call() && context.specs.at(op.spec).droppable ? first_equal(graph, i) : i;
      define_outputs(graph, i, first);
    }
    replace_by_aliases(graph, replacements_, scratch_);
  }

 private:
  // The call before `i` that computes the same values, while all of them are still there; else `i`.
  uint32_t first_equal(const LogicalGraph& graph, uint32_t i) {
    const Operator& op = graph.operators[i];
    const uint32_t of_spec = first_of_spec_.get(op.spec);
    if (of_spec == SlotMap::kNone) {
      first_of_spec_.set(op.spec, i);
      return i;
    }
    if (of_spec != kInIndex) {  // the second one
      find_or_insert(graph, of_spec);
      first_of_spec_.set(op.spec, kInIndex);
    }
    uint32_t& kept = find_or_insert(graph, i);
    const Operator& first = graph.operators[kept];
    const std::span<const OperandId> outputs = graph.outputs(first);
    for (size_t k = 0; k < outputs.size() && kept != i; ++k) {
      if (!numbers_.holds(outputs[k], number_of_operand_[first.first_operand + first.num_inputs + k])) kept = i;
    }
    return kept;
  }

  uint32_t& find_or_insert(const LogicalGraph& graph, uint32_t i) {
    const Operator& op = graph.operators[i];
    uint64_t hash = op.spec;
    for (uint32_t number : input_numbers(op)) hash = mix_hash(hash, number);
    for (const Scalar& scalar : graph.scalars_of(op)) hash = mix_hash(hash, scalar.bits);
    return calls_.find_or_insert(hash, i, [&](uint32_t other) { return is_equal(graph, op, graph.operators[other]); });
  }

  void define_outputs(const LogicalGraph& graph, uint32_t i, uint32_t first) {
    const Operator& op = graph.operators[i];
    const std::span<const OperandId> outputs = graph.outputs(op);
    const uint32_t operand = op.first_operand + op.num_inputs;
    if (first == i) {
      for (size_t k = 0; k < outputs.size(); ++k) number_of_operand_[operand + k] = numbers_.define(outputs[k]);
      return;
    }
    const std::span<const OperandId> values = graph.outputs(graph.operators[first]);
    replacements_.push_back({i, {values.begin(), values.end()}});
    for (size_t k = 0; k < outputs.size(); ++k) {
      number_of_operand_[operand + k] = numbers_.of(values[k]);
      numbers_.define_as(outputs[k], numbers_.of(values[k]));
    }
  }

  bool is_equal(const LogicalGraph& graph, const Operator& a, const Operator& b) const {
    const auto same_bits = [](const Scalar& x, const Scalar& y) { return x.bits == y.bits; };
    return a.spec == b.spec && std::ranges::equal(input_numbers(a), input_numbers(b)) &&
           std::ranges::equal(graph.scalars_of(a), graph.scalars_of(b), same_bits);
  }
  std::span<const uint32_t> input_numbers(const Operator& op) const {
    return {number_of_operand_.data() + op.first_operand, op.num_inputs};
  }

  ValueNumbers numbers_;
  HashIndex calls_;        // of specs that have several
  SlotMap first_of_spec_;  // by spec: its first call, until there is another one
  static constexpr uint32_t kInIndex = 0xFFFFFFFEu;
  std::vector<uint32_t> number_of_operand_;  // parallel to the graph's operands
  std::vector<Replacement> replacements_;
  LogicalGraph scratch_;
};

}  // namespace

std::unique_ptr<Pass> make_repeated_operators_pass() { return std::make_unique<RepeatedOperatorsPass>(); }

}  // namespace dtorch
