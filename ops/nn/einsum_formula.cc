// Reading einsum's formulas.
#include "ops/nn/einsum_formula.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace dtorch::nn_ops {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

constexpr char kDots = '.';  // stands for "..." after the first step

class Reader {
 public:
  Reader(const std::string& text, std::span<const Shape* const> shapes) : text_(text), shapes_(shapes) {}

  EinsumFormula read() {
    std::string plain;
    for (char c : text_) {
      if (c != ' ') plain.push_back(c);
    }
    const size_t arrow = plain.find("->");
    EinsumFormula formula;
    formula.operands = operands(plain.substr(0, arrow));
    if (formula.operands.size() != shapes_.size()) {
      throw error("it has " + std::to_string(formula.operands.size()) + " operands, the call has " +
                  std::to_string(shapes_.size()));
    }
    std::string result = arrow == std::string::npos ? implied_result(formula) : with_dots(plain.substr(arrow + 2));
    name_dots(&formula, &result);
    check_result(formula, result);
    formula.result = result;
    return formula;
  }

 private:
  UserError error(const std::string& what) const { return UserError("[einsum] formula '" + text_ + "': " + what); }

  // One operand or the result, "..." as kDots.
  std::string with_dots(const std::string& part) const {
    std::string out;
    for (size_t i = 0; i < part.size(); ++i) {
      if (is_letter(part[i])) {
        out.push_back(part[i]);
      } else if (part.compare(i, 3, "...") == 0 && out.find(kDots) == std::string::npos) {
        out.push_back(kDots);
        i += 2;
      } else {
        throw error(std::string("'") + part[i] + "' isn't a letter");
      }
    }
    return out;
  }

  std::vector<std::string> operands(const std::string& list) const {
    std::vector<std::string> parts;
    for (size_t start = 0;;) {
      const size_t comma = list.find(',', start);
      parts.push_back(with_dots(list.substr(start, comma == std::string::npos ? comma : comma - start)));
      if (comma == std::string::npos) return parts;
      start = comma + 1;
    }
  }

  // The dots' dims, then the letters that stand once, in alphabetical order.
  static std::string implied_result(const EinsumFormula& formula) {
    std::string all, result;
    for (const std::string& operand : formula.operands) all += operand;
    std::ranges::sort(all);
    if (all.find(kDots) != std::string::npos) result.push_back(kDots);
    for (char c : all) {
      if (c != kDots && std::ranges::count(all, c) == 1) result.push_back(c);
    }
    return result;
  }

  // Replaces kDots by letters that nothing else uses, aligned at the right.
  void name_dots(EinsumFormula* formula, std::string* result) const {
    std::string used, names;
    size_t most = 0;
    std::vector<size_t> counts;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const std::string& operand = formula->operands[i];
      const bool dots = operand.find(kDots) != std::string::npos;
      const int64_t own = std::ssize(operand) - (dots ? 1 : 0), ndim = shapes_[i]->ndim();
      if (ndim < own || (!dots && ndim != own)) {
        throw ShapeError("[einsum] operand " + std::to_string(i) + " has shape " + shapes_[i]->str() +
                         ", the formula '" + text_ + "' gives it " + std::to_string(own) + " dims");
      }
      counts.push_back(static_cast<size_t>(ndim - own));
      most = std::max(most, counts.back());
      used += operand;
    }
    for (char c = 'A'; names.size() < most && c <= 'z'; ++c) {
      if (is_letter(c) && used.find(c) == std::string::npos) names.push_back(c);
    }
    if (names.size() < most) throw error("it leaves no letters for '...'");
    const auto name = [&](std::string* part, size_t count) {
      const size_t at = part->find(kDots);
      if (at != std::string::npos) part->replace(at, 1, names.substr(names.size() - count));
    };
    for (size_t i = 0; i < counts.size(); ++i) name(&formula->operands[i], counts[i]);
    name(result, most);
  }

  void check_result(const EinsumFormula& formula, const std::string& result) const {
    for (char c : result) {
      if (std::ranges::count(result, c) > 1) throw error(std::string("'") + c + "' stands twice in the result");
      const auto has = [c](const std::string& operand) { return operand.find(c) != std::string::npos; };
      if (!std::ranges::any_of(formula.operands, has)) {
        throw error(std::string("'") + c + "' of the result is in no operand");
      }
    }
  }

  const std::string& text_;
  std::span<const Shape* const> shapes_;
};

}  // namespace

std::string EinsumFormula::str() const {
  std::string text;
  for (const std::string& operand : operands) text += (&operand == operands.data() ? "" : ",") + operand;
  return text + "->" + result;
}

EinsumFormula split_formula(const std::string& formula) {
  const size_t arrow = formula.find("->");
  DTORCH_CHECK(arrow != std::string::npos, formula);
  EinsumFormula f{{std::string()}, formula.substr(arrow + 2)};
  for (char c : formula.substr(0, arrow)) {
    if (c == ',') {
      f.operands.emplace_back();
    } else {
      f.operands.back().push_back(c);
    }
  }
  return f;
}

EinsumFormula read_formula(const std::string& text, std::span<const Shape* const> shapes) {
  return Reader(text, shapes).read();
}

int64_t size_of_letter(const EinsumFormula& formula, std::span<const Shape* const> shapes, char letter) {
  int64_t size = 1;
  size_t found_in = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t d = 0; d < formula.operands[i].size(); ++d) {
      const int64_t own = (*shapes[i])[static_cast<int64_t>(d)];
      if (formula.operands[i][d] != letter || own == size || own == 1) continue;
      if (size != 1) {
        throw ShapeError(std::string("[einsum] letter '") + letter + "' is " + std::to_string(size) + " in operand " +
                         std::to_string(found_in) + " and " + std::to_string(own) + " in operand " + std::to_string(i) +
                         ": shapes " + shapes[found_in]->str() + " and " + shapes[i]->str());
      }
      size = own;
      found_in = i;
    }
  }
  return size;
}

}  // namespace dtorch::nn_ops
