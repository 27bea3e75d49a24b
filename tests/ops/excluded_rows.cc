#include "tests/ops/excluded_rows.h"

namespace dtorch::test {
namespace {

constexpr ExcludedRow kRows[] = {
    {"to", "P->P",
     "from integers to floating: parts of an integer sum may be far larger than the sum, and rounded one by one they "
     "no "
     "longer add up to it"},
};

}  // namespace

std::span<const ExcludedRow> excluded_rows() { return kRows; }

const char* reason_of_exclusion(const std::string& op, const std::string& row) {
  for (const ExcludedRow& excluded : kRows) {
    if (op == excluded.op && row == excluded.row) return excluded.reason;
  }
  return nullptr;
}

}  // namespace dtorch::test
