#include "ops/operator_list.h"

#include <mutex>

#include "ops/create/operators.h"
#include "ops/image/operators.h"
#include "ops/index/operators.h"
#include "ops/loss/operators.h"
#include "ops/math/operators.h"
#include "ops/move/operators.h"
#include "ops/nn/operators.h"
#include "ops/shape/operators.h"

namespace dtorch {

void register_builtin_operators() {
  static std::once_flag once;
  std::call_once(once, [] {
    OperatorRegistry& registry = OperatorRegistry::global();
    for (const auto& room : {create_operators(), math_operators(), shape_operators(), index_operators(), nn_operators(),
                             image_operators(), loss_operators(), move_operators()}) {
      for (OperatorDef* def : room) registry.add(*def);
    }
  });
}

}  // namespace dtorch
