// Elementwise calls as a device would be given them, for generated kernels: one device, operands of one shape.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "ops/def/fused_program.h"
#include "ops/def/operator_def.h"

namespace dtorch::test {

struct OperandOf {
  DType dtype = kFloat32;
  bool is_single = false;
};

// One call and all that its LocalOperator points to.
struct ElementwiseCall {
  std::string what;  // "add float32 float32"
  const OperatorDef* def = nullptr;
  OperatorSpec spec;
  LocalOperator local;
  std::vector<OperandOf> inputs;
  std::vector<Scalar> scalars;
};

// Every operator with OperatorDef::elementwise on every dtype that its inference takes, with numbers and with operands
// of one element. A deque: addresses stay.
std::deque<ElementwiseCall> all_elementwise_calls(int64_t num_elements);
// False when the operator's inference refuses these inputs.
bool make_call(ElementwiseCall& call, const char* op, const std::string& attributes, std::vector<OperandOf> inputs,
               std::vector<Scalar> scalars, int64_t num_elements);

// The call alone.
FusedProgram program_of(const ElementwiseCall& call, int64_t num_elements);

// Values that this dtype has, of both signs, some of them equal or special; `seed` chooses.
std::vector<std::byte> values_of(DType dtype, int64_t num_elements, uint32_t seed);

// What the operator's own kernel makes of inputs' bytes.
std::vector<std::byte> run_on_cpu(const ElementwiseCall& call, const std::vector<std::vector<std::byte>>& inputs,
                                  int64_t num_elements);

}  // namespace dtorch::test
