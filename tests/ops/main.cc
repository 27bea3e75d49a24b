// One test for each operator that has samples, beside the tests of this folder.
#include "checker/checker.h"
#include "ops/ops.h"
#include "runtime/worker/prepared_check.h"
#include "tests/ops/excluded_rows.h"
#include "tests/support/cluster.h"

namespace {

class OperatorTest : public dtorch::test::KernelTest {
 public:
  explicit OperatorTest(const dtorch::OperatorDef& op) : op_(op) {}
  void TestBody() override {
    const dtorch::checker::OperatorReport report =
        dtorch::checker::check_operator(dtorch::test::client(), op_, {.excluded = dtorch::test::excluded_rows()});
    EXPECT_GT(report.counts.samples, 0);
    size_t shown = 0;
    for (const std::string& problem : report.problems) {
      if (++shown <= 10) ADD_FAILURE() << problem;
    }
    if (shown > 10) ADD_FAILURE() << "and " << shown - 10 << " more";
  }

 private:
  const dtorch::OperatorDef& op_;
};

}  // namespace

int main(int argc, char** argv) {
  dtorch::set_check_prepared(true);
  dtorch::register_builtin_operators();
  const dtorch::OperatorRegistry& registry = dtorch::OperatorRegistry::global();
  for (uint16_t index = 0; index < registry.size(); ++index) {
    const dtorch::OperatorDef& op = registry.at(index);
    if (op.samples == nullptr) continue;
    testing::RegisterTest("Operators", op.name, nullptr, nullptr, __FILE__, __LINE__,
                          [&op]() -> dtorch::test::KernelTest* { return new OperatorTest(op); });
  }
  return dtorch::test::run_tests(argc, argv, 2, 8);
}
