// Rows that would need no communication and that an operator refuses all the same, each with its reason. The checker
// finds such rows by brute force (row_search.h) and takes each of them for a fault that doesn't stand here.
#pragma once
#include <span>
#include <string>

namespace dtorch::test {

struct ExcludedRow {
  const char* op;
  const char* row;  // as in docs/operators.md: "R,P->P"
  const char* reason;
};
std::span<const ExcludedRow> excluded_rows();

// The reason why this row is refused, or null.
const char* reason_of_exclusion(const std::string& op, const std::string& row);

}  // namespace dtorch::test
