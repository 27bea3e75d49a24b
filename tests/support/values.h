// Host values for tests, and the comparison of a distributed tensor, device by device, with the value that it should
// have: the checker's.
#pragma once
#include "checker/values.h"

namespace dtorch::test {

using checker::check_tensor;
using checker::default_tolerance;
using checker::difference;
using checker::distribute;
using checker::iota;
using checker::local_shapes;
using checker::normal;
using checker::part_of;
using checker::partial_part;
using checker::seq;
using checker::TensorCheck;

}  // namespace dtorch::test
