// One test for each call of this folder.
#include <set>
#include <string>

#include "checker/checker.h"
#include "tests/layouts/calls.h"
#include "tests/support/cluster.h"

namespace dtorch::test {
namespace {

// Operators that have an answer to every layout of what they read (class (b) of distribution.md), by the name in
// errors. Others of that class may refuse operands that don't pair up, or a pending one that they are not linear in.
const std::set<std::string>& never_refusing() {
  static const std::set<std::string> names = {
      "sum",           "mean",     "max",     "min",         "amax",       "amin",         "argmax",       "argmin",
      "prod",          "any",      "all",     "var",         "std",        "norm",         "vector_norm",  "logsumexp",
      "count_nonzero", "cumsum",   "cumprod", "cummax",      "cummin",     "logcumsumexp", "sort",         "argsort",
      "topk",          "kthvalue", "slice",   "select",      "narrow",     "flip",         "roll",         "repeat",
      "diagonal",      "trace",    "gather",  "index",       "index_put",  "scatter_add",  "index_select", "index_add",
      "put",           "take",     "nonzero", "multinomial", "categorical"};
  return names;
}

class CallTest : public KernelTest {
 public:
  explicit CallTest(const Sample& sample) : sample_(sample) {}
  void TestBody() override {
    const checker::OperatorReport report = checker::check_sample(
        client(), sample_,
        {.every_reduction = true, .max_tuples = 16, .max_pairs = 8, .max_others = 4, .max_wide = 20});
    EXPECT_GT(report.counts.accepted, 0);
    size_t shown = 0;
    for (const std::string& problem : report.problems) {
      if (++shown <= 5) ADD_FAILURE() << problem;
    }
    if (shown > 5) ADD_FAILURE() << "and " << shown - 5 << " more";
    for (const auto& [op, count] : report.refused_by) {
      EXPECT_FALSE(never_refusing().contains(op)) << op << " refused " << count << " calls";
    }
  }

 private:
  const Sample sample_;
};

void add(const char* family, const std::vector<Sample>& samples) {
  for (const Sample& sample : samples) {
    testing::RegisterTest(family, sample.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [sample]() -> KernelTest* { return new CallTest(sample); });
  }
}

}  // namespace

void register_calls() {
  add("Elementwise", elementwise_calls());
  add("Pending", pending_calls());
  add("Products", product_calls());
  add("Reductions", reduction_calls());
  add("Running", running_calls());
  add("Shapes", shape_calls());
  add("Indexing", index_calls());
  add("Images", image_calls());
  add("Losses", loss_calls());
  add("Networks", network_calls());
  add("Random", random_calls());
}

}  // namespace dtorch::test
