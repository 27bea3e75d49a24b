// A job that was ended because a process of it is gone.
#pragma once
#include "runtime/base/error.h"

namespace dtorch {

class PeerLost : public RuntimeFault {
 public:
  using RuntimeFault::RuntimeFault;
};

}  // namespace dtorch
