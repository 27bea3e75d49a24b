// Rows that would need no communication and that an operator refuses all the same, each with its reason. The checker
// takes each of them for a fault that doesn't stand here.
#pragma once
#include <span>

#include "checker/checker.h"

namespace dtorch::test {

std::span<const checker::ExcludedRow> excluded_rows();

}  // namespace dtorch::test
