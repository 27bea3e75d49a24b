// PlacementError: the call's inputs have placements that the operator can't take. Says what would be legal.
#pragma once
#include <string>
#include <vector>

#include "mesh/signature.h"
#include "runtime/base/error.h"

namespace dtorch {

class PlacementError : public UserError {
 public:
  struct Input {
    Shape shape;
    DType dtype;
    DeviceMesh mesh;
    Layout layout;
  };
  PlacementError(std::string op, std::vector<Input> inputs, MatchFailure failure, SourceLine where);

  const std::string& op() const { return op_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::string& axis() const { return axis_; }  // its name, or "axis 1"; "" when no single axis failed
  const std::string& reason() const { return failure_.reason; }
  const std::vector<std::string>& legal_rows() const { return failure_.legal_rows; }
  // The cheapest redistributes that make the call legal: in words, and to execute (input number and layout).
  const std::string& suggestion() const { return suggestion_; }
  const std::vector<Conversion>& fix() const { return failure_.fix; }
  const SourceLine& where() const { return where_; }

 private:
  std::string op_, axis_, suggestion_;
  std::vector<Input> inputs_;
  MatchFailure failure_;
  SourceLine where_;
};

}  // namespace dtorch
