// Formulas of einsum as users write them, brought to the plain form that the operator takes. Private to this room.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "mesh/shape.h"

namespace dtorch::nn_ops {

// One letter a dim. In the plain form every letter stands at most once in an operand and in the result, and "->" isn't
// implied.
struct EinsumFormula {
  std::vector<std::string> operands;
  std::string result;
  std::string str() const;  // "ab,bc->ac"
};

// Of a plain formula.
EinsumFormula split_formula(const std::string& formula);

// Gives every dim of operands of these shapes a letter: "..." becomes letters that aren't used, the missing result the
// letters that stand once. A letter may still stand twice in an operand. Throws UserError or ShapeError.
EinsumFormula read_formula(const std::string& text, std::span<const Shape* const> shapes);

// The size of `letter`: that of its dims that aren't 1.
int64_t size_of_letter(const EinsumFormula& formula, std::span<const Shape* const> shapes, char letter);

}  // namespace dtorch::nn_ops
