// What the watchdog says of nodes that finish nothing, and when it ends the job. The nodes pretend.
#include <gtest/gtest.h>

#include "runtime/controller/status_report.h"
#include "runtime/controller/watchdog.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

// Two nodes with two devices each that get make (line 17), move (line 18) and read (line 19) and acknowledge nothing,
// but tell what the test makes up.
class Stalled {
 public:
  // What a node says; places are those of the test's operators.
  using Tell = std::function<Answer(int32_t node, const Place& make, const Place& move)>;
  Stalled(double deadline_s, const Tell& tell)
      : cluster_(2,
                 {.acknowledges = false,
                  .answers = [this,
                              tell](int32_t node) { return tell(node, place_of("test_make"), place_of("test_move")); }},
                 options(deadline_s)),
        graph_(*cluster_.controller, 1, cluster_.mesh) {
    read_ = graph_.read(graph_.call("test_move", {graph_.make(17)}, 18)[0], 19);
    cluster_.node(0).wait_operators(3);
    arrived_.store(true);
  }
  FakeCluster& cluster() { return cluster_; }
  const IntrusivePtr<ReadState>& read() { return read_; }

 private:
  static RuntimeOptions options(double deadline_s) {
    RuntimeOptions options;
    options.deadline_s = deadline_s;
    return options;
  }
  Place place_of(const std::string& name) {
    if (!arrived_.load()) return {~Sequence{0}, 0};
    const std::vector<Piece> pieces = cluster_.node(0).pieces();
    const std::vector<std::string> names = names_of(pieces);
    size_t at = 0;
    for (const Piece& piece : pieces) {
      for (uint32_t i = 0; i < piece.graph_part.operators.size(); ++i) {
        if (names[at++] == name) return {piece.sequence, i};
      }
    }
    return {~Sequence{0}, 0};
  }
  std::atomic<bool> arrived_{false};
  FakeCluster cluster_;
  TestGraph graph_;
  IntrusivePtr<ReadState> read_;
};

DeviceStatus waits(int64_t device, const Place& transfer) {
  return {.device = device, .activity = Activity::kWaits, .at = transfer, .waits_for = transfer};
}

Answer with_transfer(Answer answer, TransferStatus transfer) {
  answer.transfers = {std::move(transfer)};
  answer.num_transfers = 1;
  return answer;
}

// Device 1 is in make, all others wait for its value.
Answer device_one_makes(int32_t node, const Place& make, const Place& move) {
  if (node == 0) {
    return with_transfer({.devices = {waits(0, move), {.device = 1, .activity = Activity::kRuns, .at = make}}},
                         {.place = move, .number = 5, .phase = TransferPhase::kSources, .waits_for = {1}});
  }
  return with_transfer({.node = 1, .devices = {waits(2, move), waits(3, move)}},
                       {.place = move, .number = 5, .phase = TransferPhase::kReceives, .waits_for = {0}});
}

TEST(Watchdog, NamesTheDeviceThatIsInOneOperatorAndWhoWaits) {
  Stalled stalled(4, device_one_makes);
  const std::string text = failure_of(stalled.read());
  const std::string begin = "nothing has finished for ";
  ASSERT_TRUE(text.starts_with(begin)) << text;
  EXPECT_GE(std::stod(text.substr(begin.size())), 1.0) << text;
  const size_t culprit = text.find(":\n  node 0 device 1 is still in [test_make] #");
  ASSERT_NE(culprit, std::string::npos) << text;
  EXPECT_NE(text.find("16 bytes, called at user.cc:17\n", culprit), std::string::npos) << text;
  EXPECT_NE(text.find("\n  devices 0, 2, 3 wait for [test_move] #", culprit), std::string::npos) << text;
  EXPECT_NE(text.find("\n  node 0: transfer 5, [test_move] #", culprit), std::string::npos) << text;
  EXPECT_NE(text.find("called at user.cc:18, waits for the value of device 1", culprit), std::string::npos) << text;
  EXPECT_NE(text.find("called at user.cc:18, waits for a message of node 0", culprit), std::string::npos) << text;
  EXPECT_THROW(std::rethrow_exception(stalled.cluster().controller->failure()), DeadlinePassed);
}

TEST(Watchdog, NamesATransferThatNobodyCompletesWhenNothingRuns) {
  Stalled stalled(4, [](int32_t node, const Place& make, const Place& move) {
    return node == 0 ? Answer{.devices = {{.device = 0}, {.device = 1}}} : device_one_makes(1, make, move);
  });
  const std::string text = failure_of(stalled.read());
  EXPECT_NE(text.find(":\n  devices 2, 3 wait for [test_move] #"), std::string::npos) << text;
  EXPECT_NE(text.find("waits for a message of node 0"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  node 0 is idle"), std::string::npos) << text;
}

TEST(Watchdog, ADeviceThatMovesOnIsNoReasonToEndTheJob) {
  // A long piece of short operators: nothing is acknowledged, but every look finds another operator.
  std::atomic<uint32_t> looks{0};
  Stalled stalled(0.5, [&](int32_t node, const Place& make, const Place& move) {
    const Place& at = looks.fetch_add(1) / 2 % 2 == 0 ? make : move;
    return Answer{.devices = {{.device = 2 * node, .activity = Activity::kRuns, .at = at}}};
  });
  EXPECT_TRUE(eventually([&] { return looks.load() >= 40; }));  // for more than the deadline
  EXPECT_EQ(stalled.cluster().controller->failure(), nullptr);
  stalled.cluster().acknowledge_from_now_on();
  EXPECT_EQ(failure_of(stalled.read()), "");
}

TEST(Watchdog, NobodyIsAskedWhileWorkIsAcknowledged) {
  RuntimeOptions options;
  options.deadline_s = 20;
  auto asked = std::make_shared<std::atomic<int>>(0);
  FakeCluster cluster(1, {.answers = [asked](int32_t) { return asked->fetch_add(1), Answer(); }}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(failure_of(graph.read(graph.make())), "");
  EXPECT_EQ(asked->load(), 0);
  EXPECT_NE(cluster.controller->describe_status().find("node 0 is idle"), std::string::npos);
  EXPECT_EQ(asked->load(), 1);
}

TEST(Watchdog, StatusNamesANodeThatDoesntAnswer) {
  FakeCluster cluster(2, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const IntrusivePtr<ReadState> read = graph.read(graph.make(17));
  cluster.node(0).wait_operators(2);
  const std::string text = cluster.controller->describe_status();
  EXPECT_NE(text.find("node 1 doesn't answer; it owes [test_make] called at user.cc:17"), std::string::npos) << text;
  cluster.acknowledge_from_now_on();
  EXPECT_EQ(failure_of(read), "");
}

TEST(Status, ALongListIsCutAndOperatorsThatHaveFinishedAreNoCause) {
  Answer answer;
  for (int64_t device = 0; device < 20; ++device) {
    answer.devices.push_back({.device = device, .activity = Activity::kWaits, .at = {3, 1}, .waits_for = {3, 0}});
  }
  answer.devices.push_back({.device = 20, .activity = Activity::kRuns, .at = {2, 0}});
  const StatusNames names{
      .operator_at = [](const Place& place) -> std::string { return place.sequence == 3 ? "[move]" : ""; },
      .owed_by = [](int32_t) { return ""; }};
  EXPECT_EQ(describe_status({answer}, names),
            "  devices 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more wait for [move]");
}

TEST(Status, OfTransfersThatNobodyWaitsForTheFirstTell) {
  Answer answer;
  answer.devices.push_back({.device = 0, .activity = Activity::kWaits, .at = {9, 1}, .waits_for = {3, 11}});
  for (uint32_t i = 0; i < 12; ++i) {
    answer.transfers.push_back({.place = {3, i}, .number = i, .phase = TransferPhase::kReceives, .waits_for = {1}});
  }
  const StatusNames names{.operator_at = [](const Place&) { return "[move]"; }, .owed_by = [](int32_t) { return ""; }};
  std::string expected = "  device 0 waits for [move]";
  for (int i : {0, 1, 2, 3, 4, 5, 6, 7, 11})
    expected += "\n  node 0: transfer " + std::to_string(i) + ", [move], waits for a message of node 1";
  EXPECT_EQ(describe_status({answer}, names), expected + "\n  and 3 more transfers that nobody waits for yet");
}

}  // namespace
}  // namespace dtorch
