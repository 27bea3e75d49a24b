// Templates through the executor, against nodes that pretend: what is replayed, when it isn't, and what errors say.
#include <gtest/gtest.h>

#include "runtime/controller/template_store.h"
#include "tests/controller/fake_cluster.h"

namespace dtorch {
namespace {

struct Stats : RuntimeStats, TemplateStats {};
Stats stats_of(FakeCluster& cluster) { return {cluster.controller->stats(), cluster.controller->template_stats()}; }

// What a piece means, with values numbered by appearance, so that slots don't matter.
std::string meaning(const std::vector<Piece>& pieces, size_t first, size_t end) {
  std::map<OperandId, size_t> numbers;
  std::string text;
  for (size_t i = first; i < end; ++i) {
    const LogicalGraph& graph = pieces[i].graph_part;
    for (const Operator& op : graph.operators) {
      text += op.spec == kReleaseSpec ? "r(" : std::to_string(op.spec) + "(";
      for (size_t k = 0; k < size_t{op.num_inputs} + op.num_outputs; ++k) {
        const OperandId operand = graph.operands[op.first_operand + k];
        text += std::to_string(numbers.try_emplace(operand & kMaxOperand, numbers.size()).first->second) +
                ((operand & kLastUse) != 0 ? "! " : " ");
      }
      text += ")";
    }
  }
  return text;
}

// One turn of a loop with a read at its end: everything it makes is released in it.
std::string turn(TestGraph& graph, OperandId constant, uint32_t line = 1, const char* op = "test_add") {
  const OperandId a = graph.make(line);
  const OperandId b = graph.call(op, {a, constant}, line + 1)[0];
  const OperandId c = graph.call("test_add", {b, a}, line + 2, {})[0];
  graph.release({a, b});
  const IntrusivePtr<ReadState> read = graph.read(c, line + 3);
  graph.release({c});
  return failure_of(read);
}

TEST(Replay, BeginsWithTheThirdTurn) {
  FakeCluster cluster(2);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  std::vector<int64_t> replays;
  for (int i = 0; i < 6; ++i) {
    ASSERT_EQ(turn(graph, constant), "");
    replays.push_back(stats_of(cluster).template_operators);
  }
  // The first turn lacks the release of the one before; the second one's operators are all known.
  EXPECT_EQ(replays, (std::vector<int64_t>{0, 0, 4, 8, 12, 16}));
  EXPECT_EQ(stats_of(cluster).templates_defined, 1);
  EXPECT_EQ(stats_of(cluster).template_breaks, 0);
  graph.close();
  for (size_t n = 0; n < 2; ++n) {
    ASSERT_EQ(cluster.node(n).templates().size(), 1u);
    EXPECT_FALSE(cluster.node(n).replays().empty());
  }
}

TEST(Replay, IsSwitchedOff) {
  RuntimeOptions options;
  options.templates = false;
  FakeCluster cluster(1, {}, options);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  for (int i = 0; i < 6; ++i) ASSERT_EQ(turn(graph, constant), "");
  EXPECT_EQ(stats_of(cluster).template_operators, 0);
  EXPECT_EQ(stats_of(cluster).templates_defined, 0);
}

TEST(Replay, MeansWhatThePiecesMeant) {
  FakeCluster cluster(1, {.acknowledges = false});  // so that every turn is one message
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  // Two pieces in flight hold the rest together.
  const OperandId constant = graph.make();
  graph.flush();
  graph.make();
  graph.flush();
  cluster.node(0).wait_operators(2);
  std::vector<IntrusivePtr<ReadState>> reads;
  OperandId last = constant;
  for (int i = 0; i < 5; ++i) {
    const OperandId a = graph.make(10);
    const OperandId unused = graph.add(a, a, 11);
    const OperandId b = graph.call("test_add", {a, last}, 12, {unused})[0];
    graph.release({a, last});
    reads.push_back(graph.read(b, 13));
    last = b;
  }
  const std::vector<Piece> pieces = cluster.node(0).wait_operators(2 + 5 * 3);
  ASSERT_EQ(pieces.size(), 7u);
  EXPECT_EQ(cluster.node(0).replays().size(), 3u);
  for (size_t i = 3; i < 7; ++i) EXPECT_EQ(meaning(pieces, i, i + 1), meaning(pieces, 2, 3)) << i;
  // Slots of what comes from before and outlives are the client's.
  for (size_t i = 4; i < 7; ++i) {
    EXPECT_EQ(pieces[i].graph_part.operands.back(), last - 3 * (6 - i)) << "the read's input";
  }
  cluster.acknowledge_from_now_on();
  for (const auto& read : reads) EXPECT_EQ(failure_of(read), "");
}

TEST(Replay, ALoopWithoutBoundariesIsFound) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId b = graph.make(1);
  OperandId y = graph.make(2);
  constexpr int64_t kCount = 20000;
  OperandId old = y;
  for (int64_t i = 0; i < kCount; ++i) {
    const OperandId next = i == 0 ? graph.add(y, b, 3) : graph.call("test_add", {y, b}, 3, {old})[0];
    old = y;
    y = next;
  }
  EXPECT_EQ(failure_of(graph.read(y)), "");
  const Stats stats = stats_of(cluster);
  EXPECT_EQ(stats.operators, kCount + 3);
  EXPECT_GT(stats.template_operators, kCount - 1000);
  EXPECT_EQ(stats.templates_defined, 1);
}

TEST(Replay, TurnsThatNeverComeAgainAreNotKeptForEver) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  for (uint32_t i = 0; i < 100; ++i) {
    OperandId a = graph.make(i);
    for (uint32_t k = 0; k < i % 7; ++k) a = graph.add(a, constant, 1000 + i + k);
    ASSERT_EQ(failure_of(graph.read(a, 3000 + i)), "");
  }
  EXPECT_EQ(stats_of(cluster).templates_defined, TemplateStore::kMaxEarly);
  EXPECT_EQ(stats_of(cluster).template_operators, 0);
}

TEST(Replay, WhatVariesTravelsAndTheRestDoesNot) {
  FakeCluster cluster(1, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  for (int i = 0; i < 5; ++i) {
    OperandId x = graph.make(5);
    std::vector<OperandId> old;
    for (uint32_t k = 0; k < 100; ++k) {
      const OperandId next = graph.call("test_add", {x, constant}, 6 + k, old)[0];
      old = {x};
      x = next;
    }
    graph.read(x, 200);
    graph.release({old[0], x});
  }
  graph.flush();
  cluster.acknowledge_from_now_on();
  EXPECT_EQ(failure_of(graph.barrier()), "");
  const std::vector<Replay> replays = cluster.node(0).replays();
  ASSERT_FALSE(replays.empty());
  EXPECT_EQ(replays[0].new_varying.size(), 1u) << "the read's number";
  const Replay& last = replays.back();
  EXPECT_TRUE(last.new_varying.empty());
  EXPECT_EQ(last.scalars.size(), 1u);
}

TEST(Replay, DoesNotSurviveADifference) {
  struct Difference {
    const char* what;
    std::function<std::string(TestGraph&, OperandId)> turn;
  };
  const std::vector<Difference> differences = {
      {"operator", [](TestGraph& g, OperandId c) { return turn(g, c, 1, "test_sum"); }},
      {"source line", [](TestGraph& g, OperandId c) { return turn(g, c, 2); }},
      {"dataflow",
       [](TestGraph& g, OperandId c) {
         const OperandId a = g.make(1);
         const OperandId b = g.call("test_add", {c, a}, 2)[0];
         const OperandId d = g.call("test_add", {b, a}, 3)[0];
         g.release({a, b});
         const IntrusivePtr<ReadState> read = g.read(d, 4);
         g.release({d});
         return failure_of(read);
       }},
      {"one value twice",
       [](TestGraph& g, OperandId) {
         const OperandId a = g.make(1);
         const OperandId b = g.call("test_add", {a, a}, 2)[0];
         const OperandId d = g.call("test_add", {b, a}, 3)[0];
         g.release({a, b});
         const IntrusivePtr<ReadState> read = g.read(d, 4);
         g.release({d});
         return failure_of(read);
       }},
      {"order of releases",
       [](TestGraph& g, OperandId c) {
         const OperandId a = g.make(1);
         const OperandId b = g.call("test_add", {a, c}, 2)[0];
         const OperandId d = g.call("test_add", {b, a}, 3)[0];
         g.release({b, a});
         const IntrusivePtr<ReadState> read = g.read(d, 4);
         g.release({d});
         return failure_of(read);
       }},
      {"an earlier end",
       [](TestGraph& g, OperandId c) {
         const OperandId a = g.make(1);
         const OperandId b = g.call("test_add", {a, c}, 2)[0];
         const std::string failure = failure_of(g.barrier());
         g.release({a, b});
         return failure;
       }},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.what);
    FakeCluster cluster(1);
    TestGraph graph(*cluster.controller, 1, cluster.mesh);
    const OperandId constant = graph.make();
    graph.flush();
    for (int i = 0; i < 4; ++i) ASSERT_EQ(turn(graph, constant), "");
    const Stats before = stats_of(cluster);
    EXPECT_EQ(before.template_operators, 2 * 4);
    EXPECT_EQ(difference.turn(graph, constant), "");
    EXPECT_EQ(stats_of(cluster).template_breaks, before.template_breaks + 1);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(turn(graph, constant), "");
    EXPECT_GT(stats_of(cluster).template_operators, before.template_operators) << "it isn't taken up again";
  }
}

TEST(Replay, ManyTurnsThatAlternateAreAllReplayed) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  const auto round = [&](int i) {
    // Turns 0, 1, 2 and 3 begin alike; which comes next isn't the same every time.
    for (int k = 0; k < 8; ++k) {
      const int which = (k * k + i * k) % 4;
      const OperandId a = graph.make(1);
      OperandId b = graph.call("test_add", {a, constant}, 2)[0];
      for (int j = 0; j < which; ++j) b = graph.call("test_add", {b, a}, 3)[0];
      const IntrusivePtr<ReadState> read = graph.read(b, 4);
      ASSERT_EQ(failure_of(read), "");
    }
  };
  for (int i = 0; i < 10; ++i) round(i);
  const Stats before = stats_of(cluster);
  for (int i = 0; i < 10; ++i) round(i);
  const Stats after = stats_of(cluster);
  EXPECT_EQ(after.template_operators - before.template_operators, after.operators - before.operators);
  EXPECT_EQ(after.template_breaks, before.template_breaks);
}

TEST(Replay, AnInstanceThatIsAbandonedNamesWhatItLeaves) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  for (int i = 0; i < 4; ++i) ASSERT_EQ(turn(graph, constant), "");
  // The client pauses, so that the nodes begin; then it does something else.
  const size_t before = cluster.node(0).replays().size();
  const OperandId a = graph.make(1);
  const OperandId b = graph.call("test_add", {a, constant}, 2)[0];
  ASSERT_TRUE(eventually([&] { return cluster.node(0).replays().size() > before; }));
  const OperandId c = graph.call("test_pair", {b, a}, 9)[0];
  EXPECT_EQ(failure_of(graph.read(c, 4)), "");
  const std::vector<Replay> replays = cluster.node(0).replays();
  ASSERT_GT(replays.size(), before + 1);
  const Replay& abandoned = replays.back();
  EXPECT_EQ(abandoned.first_call, abandoned.end_call);
  EXPECT_TRUE(abandoned.ends);
  EXPECT_EQ(abandoned.operands.front(), a);
  EXPECT_EQ(stats_of(cluster).template_breaks, 1);
}

TEST(Replay, AnErrorNamesItsOwnLine) {
  FakeCluster cluster(2, {.fails = {{"test_effect", "boom"}}});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  for (int i = 0; i < 5; ++i) {
    const OperandId a = graph.make(1);
    OperandId b = a;
    for (uint32_t k = 0; k < 5; ++k) b = graph.call("test_add", {b, constant}, 10 + k)[0];
    graph.call("test_effect", {b}, 42);
    ASSERT_EQ(failure_of(graph.barrier()), "");
    std::string failure;
    std::lock_guard lock(graph.link().failure_mutex);
    try {
      std::rethrow_exception(std::exchange(graph.link().unread_failure, nullptr));
    } catch (const RuntimeFault& fault) {
      failure = fault.what();
    }
    EXPECT_EQ(failure, "[test_effect] failed on node 0 device 0: boom; called at user.cc:42") << "turn " << i;
  }
  EXPECT_GE(stats_of(cluster).template_operators, 2 * 7);
}

TEST(Replay, TaintFollowsThroughInstances) {
  FakeCluster cluster(1, {.acknowledges = false});
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  cluster.node(0).wait_operators(1);
  cluster.node(0).acknowledge_all();
  OperandId last = constant;
  std::vector<IntrusivePtr<ReadState>> reads;
  const auto turn_of = [&] {
    const OperandId a = graph.make(20);
    const OperandId b = graph.call("test_add", {a, last}, 21)[0];
    graph.release({a});
    last = b;
    reads.push_back(graph.read(b, 22));
  };
  for (int i = 0; i < 4; ++i) {
    turn_of();
    cluster.node(0).wait_operators(1 + 3 * (static_cast<size_t>(i) + 1));
    ASSERT_TRUE(eventually([&] {
      cluster.node(0).acknowledge_all();
      return reads.back()->is_ready();
    }));
  }
  ASSERT_GT(stats_of(cluster).template_operators, 0);
  const size_t replays = cluster.node(0).replays().size();
  turn_of();
  ASSERT_TRUE(eventually([&] { return cluster.node(0).replays().size() > replays; }));
  cluster.node(0).wait_operators(1 + 3 * 5);
  // Its add fails: it is the second operator of the first part that has two.
  for (const Piece& piece : cluster.node(0).pieces()) {
    const LogicalGraph& calls = piece.graph_part;
    for (uint32_t i = 0; i < calls.operators.size(); ++i) {
      const auto outputs = calls.outputs(calls.operators[i]);
      if (!outputs.empty() && outputs[0] == last) cluster.node(0).report(0, piece.sequence, i, "boom");
    }
  }
  turn_of();
  cluster.acknowledge_from_now_on();
  const std::string expected = "[test_add] failed on node 0 device 0: boom; called at user.cc:21";
  EXPECT_EQ(failure_of(reads[4]), expected);
  EXPECT_EQ(failure_of(reads[5]), expected);
  EXPECT_EQ(failure_of(reads[3]), "");
}

TEST(Replay, FeedsComeBeforeTheInstanceThatUsesThem) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  for (uint64_t number = 1; number <= 6; ++number) {
    const OperandId fed = graph.feed(number);
    const IntrusivePtr<ReadState> read = graph.read(fed, 3);
    graph.release({fed});
    ASSERT_EQ(failure_of(read), "");
  }
  EXPECT_EQ(cluster.node(0).feeds(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_GT(stats_of(cluster).template_operators, 0);
  std::vector<uint64_t> numbers;
  for (const Piece& piece : cluster.node(0).pieces()) {
    for (const Operator& op : piece.graph_part.operators) {
      if (op.num_inputs == 0) numbers.push_back(piece.graph_part.scalars_of(op)[0].bits);
    }
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
}

TEST(Replay, TemplatesMakeRoomForNewOnes) {
  FakeCluster cluster(1);
  TestGraph graph(*cluster.controller, 1, cluster.mesh);
  const OperandId constant = graph.make();
  graph.flush();
  constexpr uint32_t kKinds = kMaxTemplates + 50;
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(turn(graph, constant, 10 * kind), "");
  }
  EXPECT_GT(stats_of(cluster).templates_defined, kMaxTemplates);
  for (const TemplateDefinition& definition : cluster.node(0).templates()) EXPECT_LT(definition.id, kMaxTemplates);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(turn(graph, constant, 0), "");
}

}  // namespace
}  // namespace dtorch
