// Which node the controller calls slow, from what nodes say that they are doing. The nodes pretend.
#include <gtest/gtest.h>

#include <atomic>

#include "runtime/controller/slow_nodes.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

// Three nodes with two devices each. Of every ten questions, node n says to as many as busy[n] that both are in an
// operator: number 1 in the first half of them, number 2 in the second.
class Nodes {
 public:
  explicit Nodes(const std::vector<int>& busy, double factor = 2)
      : busy_(busy.begin(), busy.end()),
        slow_nodes_({.is_busy = [] { return true; },
                     .ask = [this] { return ask(); },
                     .is_under_way = [](const Place& place) { return place.sequence == 7; },
                     .operator_at = [](const Place& place) { return "[op" + std::to_string(place.op_index) + "]"; }},
                    {"node 0", "node 1", "node 2"},
                    {.factor = factor, .every = std::chrono::microseconds(100), .samples = 20}) {}
  // After so many questions that two verdicts in a row have been given.
  std::string verdict() {
    const int64_t now = asked_.load();
    EXPECT_TRUE(eventually([&] { return asked_.load() >= now + 100; }));
    return slow_nodes_.describe();
  }
  void set(int node, int busy) { busy_[static_cast<size_t>(node)].store(busy); }

 private:
  struct Number : std::atomic<int> {
    Number(int value) : std::atomic<int>(value) {}
    Number(const Number& other) : std::atomic<int>(other.load()) {}
  };
  Inspection::Answers ask() {
    const auto turn = static_cast<int>(asked_.fetch_add(1) % 10);
    Inspection::Answers answers(3);
    for (int64_t n = 0; n < 3; ++n) {
      const bool runs = turn < busy_[static_cast<size_t>(n)].load();
      const DeviceStatus status{.activity = runs ? Activity::kRuns : Activity::kWaits, .at = {7, turn < 5 ? 1U : 2U}};
      answers[static_cast<size_t>(n)].emplace();
      answers[static_cast<size_t>(n)]->devices = {status, status};
    }
    return answers;
  }
  std::atomic<int64_t> asked_{0};
  std::vector<Number> busy_;
  SlowNodes slow_nodes_;
};

TEST(SlowNodes, ANodeThatTakesTwiceItsPeersTimeIsNamedWithTheOperator) {
  Nodes nodes({4, 10, 4});
  EXPECT_EQ(nodes.verdict(), "node 1 takes 2.5 times its peers' time, most of it in [op2]");
}

TEST(SlowNodes, NodesOfAboutOneSpeedAreNot) {
  Nodes nodes({5, 10, 6});
  EXPECT_EQ(nodes.verdict(), "");
}

TEST(SlowNodes, TheFactorIsTheUsers) {
  Nodes nodes({5, 10, 6}, 1.4);
  EXPECT_NE(nodes.verdict(), "");
}

TEST(SlowNodes, OneThatIsAsFastAsOthersAgainIsForgotten) {
  Nodes nodes({4, 10, 4});
  EXPECT_NE(nodes.verdict(), "");
  nodes.set(1, 4);
  EXPECT_EQ(nodes.verdict(), "");
}

}  // namespace
}  // namespace dtorch
