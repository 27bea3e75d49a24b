// Cases of libtorch_cases_aten.h.
#include "tests/ops/libtorch_cases_aten.h"

namespace dtorch::test {

void add_loss_cases(LibTorchCases&) {}

}  // namespace dtorch::test
