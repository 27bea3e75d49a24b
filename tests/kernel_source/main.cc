// The tests of this folder look operators up by name.
#include <gtest/gtest.h>

#include "ops/operator_list.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  dtorch::register_builtin_operators();
  return RUN_ALL_TESTS();
}
