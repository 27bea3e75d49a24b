#include "runtime/kernel_source/fused_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/def/cast_attrs.h"
#include "ops/math/operators.h"
#include "ops/math/where_attrs.h"
#include "runtime/kernel_source/prelude.h"

namespace dtorch::kernel_source {
namespace {

enum class Kind : uint8_t { kUnary, kBinary, kTest, kLogical, kNot, kWhere, kCast };
struct Formula {
  const char* op;        // OperatorDef::name
  const char* function;  // of the prelude: op_<function>
  Kind kind;
  bool floating_only = true;
};

constexpr Formula kFormulas[] = {
    {"neg", "neg", Kind::kUnary},
    {"abs", "abs", Kind::kUnary},
    {"sign", "sign", Kind::kUnary},
    {"floor", "floor", Kind::kUnary},
    {"ceil", "ceil", Kind::kUnary},
    {"round", "round", Kind::kUnary},
    {"square", "square", Kind::kUnary},
    {"reciprocal", "reciprocal", Kind::kUnary},
    {"exp", "exp", Kind::kUnary},
    {"log", "log", Kind::kUnary},
    {"sqrt", "sqrt", Kind::kUnary},
    {"rsqrt", "rsqrt", Kind::kUnary},
    {"sin", "sin", Kind::kUnary},
    {"cos", "cos", Kind::kUnary},
    {"erf", "erf", Kind::kUnary},
    {"relu", "relu", Kind::kUnary},
    {"sigmoid", "sigmoid", Kind::kUnary},
    {"tanh", "tanh", Kind::kUnary},
    {"silu", "silu", Kind::kUnary},
    {"sigmoid_gradient", "sigmoid_gradient", Kind::kBinary},
    {"tanh_gradient", "tanh_gradient", Kind::kBinary},
    {"silu_gradient", "silu_gradient", Kind::kBinary},
    {"add", "add", Kind::kBinary, false},
    {"sub", "sub", Kind::kBinary, false},
    {"mul", "mul", Kind::kBinary, false},
    {"mul_number", "mul", Kind::kBinary, false},
    {"div", "div", Kind::kBinary},
    {"div_number", "div", Kind::kBinary},
    {"pow", "pow", Kind::kBinary},
    {"minimum", "minimum", Kind::kBinary, false},
    {"maximum", "maximum", Kind::kBinary, false},
    {"eq", "eq", Kind::kTest, false},
    {"ne", "ne", Kind::kTest, false},
    {"lt", "lt", Kind::kTest, false},
    {"le", "le", Kind::kTest, false},
    {"gt", "gt", Kind::kTest, false},
    {"ge", "ge", Kind::kTest, false},
    {"logical_and", "&&", Kind::kLogical, false},
    {"logical_or", "||", Kind::kLogical, false},
    {"logical_not", "!", Kind::kNot, false},
    {"where", "", Kind::kWhere, false},
    {"to", "", Kind::kCast, false},
};

// An operand of a formula: an input of the call, or its number.
constexpr int kNumber = -1;

// A call with a formula, as text can be made of it.
struct Call {
  const Formula* formula = nullptr;
  std::array<int, 3> operands = {};
  size_t num_operands = 0;
  int64_t number = math::kNoNumber;
  DType dtype = kFloat32;  // that it is computed in
};

bool has_binary_attributes(std::string_view op) { return !op.ends_with("_gradient"); }

// The dtype in which tensors are compared; nothing where the dims of the tensors matter.
std::optional<DType> compared_dtype(const OperatorSpec& spec, int64_t number) {
  DType dtype = spec.inputs[0]->dtype;
  for (const TensorMeta* input : spec.inputs) {
    if (input->dtype == dtype) continue;
    for (const TensorMeta* any : spec.inputs) {
      if (any->global_shape.ndim() == 0) return std::nullopt;
    }
    dtype = promote(dtype, input->dtype);
  }
  return number == math::kNoNumber ? dtype : promote_with_number(dtype, number == math::kFloating);
}

// The operands in the formula's order, and the kind of the number.
void find_operands(const Formula& formula, const LocalOperator& local, Call& call) {
  const size_t num_inputs = local.spec->inputs.size();
  call.num_operands = num_inputs;
  for (size_t i = 0; i < num_inputs && i < call.operands.size(); ++i) call.operands[i] = static_cast<int>(i);
  if (formula.kind == Kind::kWhere) {
    const auto& attributes = *static_cast<const math::WhereAttrs*>(local.attributes.get());
    call.number = attributes.number;
    if (call.number == math::kNoNumber) return;
    call.operands = {0, attributes.number_first ? kNumber : 1, attributes.number_first ? 1 : kNumber};
    call.num_operands = num_inputs + 1;
  } else if ((formula.kind == Kind::kBinary || formula.kind == Kind::kTest || formula.kind == Kind::kLogical) &&
             has_binary_attributes(formula.op)) {
    const auto& attributes = *static_cast<const math::BinaryAttrs*>(local.attributes.get());
    call.number = attributes.number;
    if (call.number == math::kNoNumber) return;
    call.operands = attributes.reversed ? std::array{kNumber, 0, 0} : std::array{0, kNumber, 0};
    call.num_operands = num_inputs + 1;
  }
}

size_t num_operands_of(Kind kind) {
  switch (kind) {
    case Kind::kUnary:
    case Kind::kNot:
    case Kind::kCast:
      return 1;
    case Kind::kWhere:
      return 3;
    default:
      return 2;
  }
}

std::optional<Call> find_call(const OperatorDef& def, const LocalOperator& local) {
  const auto* formula =
      std::ranges::find_if(kFormulas, [&](const Formula& f) { return std::string_view(f.op) == def.name; });
  if (formula == std::end(kFormulas) || local.spec->outputs.size() != 1 || local.spec->inputs.empty())
    return std::nullopt;
  Call call{.formula = formula};
  find_operands(*formula, local, call);
  if (call.num_operands != num_operands_of(formula->kind)) return std::nullopt;
  const DType output = local.spec->outputs[0]->dtype;
  call.dtype = output;
  if (formula->kind == Kind::kTest) {
    const std::optional<DType> compared = compared_dtype(*local.spec, call.number);
    if (!compared) return std::nullopt;
    call.dtype = *compared;
  }
  const bool computes = formula->kind == Kind::kUnary || formula->kind == Kind::kBinary;
  if (computes && (output == kBool || (formula->floating_only && !is_floating(output)))) return std::nullopt;
  if (formula->kind == Kind::kLogical && call.number != math::kNoNumber) return std::nullopt;
  return call;
}

class Writer {
 public:
  Writer(const FusedProgram& program, const std::string& name) : program_(program), name_(name) {}

  std::optional<FusedSource> write() {
    for (const FusedProgram::Member& member : program_.members) {
      const std::optional<Call> call = find_call(*member.def, *member.local);
      const bool has_number = call && call->number != math::kNoNumber;
      if (!call || member.num_scalars != (has_number ? 1u : 0u)) return std::nullopt;
      write_member(*call, member);
    }
    const size_t num_parameters =
        program_.inputs.size() + program_.outputs.size() + source_.number_is_floating.size() + 1;
    if (num_parameters * sizeof(int64_t) > kMaxParameterBytes) return std::nullopt;
    source_.name = name_;
    source_.unaligned_name = name_ + "_unaligned";
    source_.width = width();
    source_.text = text();
    return std::move(source_);
  }

 private:
  const char* type(uint32_t value) const { return type_name(program_.dtype_of(value)); }

  // Value `value` in the type that `dtype` is computed in.
  std::string operand(uint32_t value, DType dtype) const {
    if (program_.dtype_of(value) == dtype) return fmt::format("widen(v{})", value);
    return fmt::format("widen(To<{}>::of(v{}))", type_name(dtype), value);
  }

  void write_member(const Call& call, const FusedProgram::Member& member) {
    const auto value = static_cast<uint32_t>(program_.inputs.size()) + next_member_++;
    std::array<std::string, 3> words;
    for (size_t i = 0; i < call.num_operands; ++i) {
      if (call.operands[i] == kNumber) {
        words[i] = fmt::format("({})s{}", math_type_name(call.dtype), source_.number_is_floating.size());
        source_.number_is_floating.push_back(call.number == math::kFloating);
      } else {
        const uint32_t input = member.inputs[static_cast<size_t>(call.operands[i])];
        const bool as_it_is = call.formula->kind == Kind::kLogical || call.formula->kind == Kind::kNot ||
                              (call.formula->kind == Kind::kWhere && i == 0);
        words[i] = as_it_is ? fmt::format("(widen(v{}) != 0)", input) : operand(input, call.dtype);
      }
    }
    body_ += fmt::format("  const {0} v{1} = To<{0}>::of({2});\n", type(value), value, formula(call, words, member));
  }

  static std::string formula(const Call& call, const std::array<std::string, 3>& words,
                             const FusedProgram::Member& member) {
    switch (call.formula->kind) {
      case Kind::kCast:
        return fmt::format("v{}", member.inputs[0]);
      case Kind::kNot:
        return "!" + words[0];
      case Kind::kLogical:
        return fmt::format("{} {} {}", words[0], call.formula->function, words[1]);
      case Kind::kWhere:
        return fmt::format("{} ? {} : {}", words[0], words[1], words[2]);
      case Kind::kUnary:
        return fmt::format("op_{}<{}>({})", call.formula->function, math_type_name(call.dtype), words[0]);
      default:
        return fmt::format("op_{}<{}>({}, {})", call.formula->function, math_type_name(call.dtype), words[0], words[1]);
    }
  }

  int32_t width() const {
    constexpr int64_t kLoadBytes = 16, kMostElements = 8;  // each is code of its own
    int64_t largest = 1;
    for (uint32_t i = 0; i < program_.inputs.size(); ++i) {
      if (!program_.inputs[i].is_single) largest = std::max(largest, size_of(program_.inputs[i].dtype));
    }
    for (uint32_t output : program_.outputs) largest = std::max(largest, size_of(program_.dtype_of(output)));
    return static_cast<int32_t>(std::min(kLoadBytes / largest, kMostElements));
  }

  template <class F>
  std::string list(F&& item) const {
    std::string all;
    for (uint32_t i = 0; i < program_.inputs.size(); ++i) all += item('i', i, i);
    for (uint32_t k = 0; k < program_.outputs.size(); ++k) all += item('o', k, program_.outputs[k]);
    return all;
  }
  std::string numbers(bool with_types) const {
    std::string all;
    for (size_t s = 0; s < source_.number_is_floating.size(); ++s)
      all += fmt::format("{}s{}, ", !with_types ? "" : source_.number_is_floating[s] ? "const f64 " : "const i64 ", s);
    return all;
  }

  // One element through all members.
  std::string element() const {
    std::string text = fmt::format("static DT_INLINE void {}_element(", name_);
    text += list([&](char kind, uint32_t, uint32_t value) {
      return kind == 'i' ? fmt::format("const {} v{}, ", type(value), value)
                         : fmt::format("{}& r{}, ", type(value), value);
    });
    text += numbers(true);
    text.resize(text.size() - 2);
    text += ") {\n" + body_;
    for (uint32_t output : program_.outputs) text += fmt::format("  r{0} = v{0};\n", output);
    return text + "}\n";
  }

  // What calls element() with these words for the inputs that aren't single, and for the outputs.
  std::string call_of_element(const char* input, const char* output) const {
    std::string text = fmt::format("{}_element(", name_);
    text += list([&](char kind, uint32_t k, uint32_t) {
      if (kind == 'o') return fmt::format(fmt::runtime(output), k) + ", ";
      return (program_.inputs[k].is_single ? fmt::format("x{}", k) : fmt::format(fmt::runtime(input), k)) + ", ";
    });
    text += numbers(false);
    text.resize(text.size() - 2);
    return text + ");\n";
  }

  std::string parameters() const {
    std::string text = list([&](char kind, uint32_t k, uint32_t value) {
      return fmt::format("{}{}* {}{}, ", kind == 'i' ? "const " : "", type(value), kind, k);
    });
    return text + numbers(true) + "const i64 n";
  }

  std::string text() const {
    std::string loads, stores, singles;
    for (uint32_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].is_single) {
        singles += fmt::format("  const {0} x{1} = *i{1};\n", type(i), i);
      } else {
        loads += fmt::format("    const Pack<{0}, kWidth> p{1} = ((const Pack<{0}, kWidth>*)i{1})[q];\n", type(i), i);
      }
    }
    for (uint32_t k = 0; k < program_.outputs.size(); ++k) {
      const char* const of = type(program_.outputs[k]);
      loads += fmt::format("    Pack<{}, kWidth> q{};\n", of, k);
      stores += fmt::format("    ((Pack<{0}, kWidth>*)o{1})[q] = q{1};\n", of, k);
    }
    std::string arguments = list([](char kind, uint32_t k, uint32_t) { return fmt::format("{}{}, ", kind, k); });
    arguments += numbers(false) + "n";
    return element() + fmt::format(
                           "template <int kWidth> static DT_INLINE void {0}_all({1}) {{\n{2}"
                           "  for (i64 q = DT_THREAD; q < n / kWidth; q += DT_THREADS) {{\n{3}"
                           "    for (int j = 0; j < kWidth; ++j) {4}{5}  }}\n"
                           "  for (i64 e = n / kWidth * kWidth + DT_THREAD; e < n; e += DT_THREADS) {6}}}\n"
                           "DT_KERNEL {0}({1}) {{ {0}_all<{7}>({8}); }}\n"
                           "DT_KERNEL {0}_unaligned({1}) {{ {0}_all<1>({8}); }}\n",
                           name_, parameters(), singles, loads, call_of_element("p{}.at[j]", "q{}.at[j]"), stores,
                           call_of_element("i{}[e]", "o{}[e]"), source_.width, arguments);
  }

  const FusedProgram& program_;
  const std::string name_;
  FusedSource source_;
  std::string body_;
  uint32_t next_member_ = 0;
};

}  // namespace

bool has_formula(const OperatorDef& def, const LocalOperator& local) { return find_call(def, local).has_value(); }

std::optional<FusedSource> fused_source(const FusedProgram& program, const std::string& name) {
  return Writer(program, name).write();
}

}  // namespace dtorch::kernel_source
