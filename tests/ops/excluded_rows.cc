#include "tests/ops/excluded_rows.h"

namespace dtorch::test {
namespace {

constexpr checker::ExcludedRow kRows[] = {
    {"to", "P->P",
     "from integers to floating: parts of an integer sum may be far larger than the sum, and rounded one by one they "
     "no longer add up to it"},
};

}  // namespace

std::span<const checker::ExcludedRow> excluded_rows() { return kRows; }

}  // namespace dtorch::test
