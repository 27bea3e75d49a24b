// What set_explain(true) notes of every call: the operator and the calls that made its inputs, back to the last read.
// Metadata only. Private to this room.
#pragma once
#include <span>
#include <vector>

#include "runtime/client/tensor.h"

namespace dtorch {

class Lineage : public RefCounted {
 public:
  struct Input {
    const TensorMeta* meta = nullptr;
    Origin origin;
    IntrusivePtr<Lineage> lineage;  // null: made before the last read, or before calls were noted
  };
  Origin origin;
  std::vector<Input> inputs;
  const char* inserted_for = nullptr;  // a conversion: the operator that needed it
  uint64_t number = 0;                 // grows along the Graph's calls
  uint64_t num_reads = 0;              // of the Graph before this call
  uint32_t depth = 0;                  // longest way to a call without lineage
};

// Notes one call and gives it to its outputs.
void note_call(std::span<const Tensor* const> inputs, std::span<Tensor> outputs, const Origin& origin);

}  // namespace dtorch
