// What MPI channels do when a rank is lost: transfers of an epoch end, peers are dropped, silence is noticed. Run on
// three ranks by Mpi.ChannelsWorkBetweenProcesses; the rank that is "lost" only stops taking part for a while.
#include <gtest/gtest.h>
#include <mpi.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "runtime/comm/launcher.h"
#include "runtime/comm/liveness.h"
#include "runtime/comm/mpi_control.h"
#include "runtime/comm/mpi_transport.h"
#include "runtime/comm/transfer.h"
#include "tests/comm/mpi_environment.h"

namespace dtorch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLimit = std::chrono::seconds(60);
constexpr size_t kSizes[] = {0, 100, 3'000'000};  // at once, and by a rendezvous

class MpiRanksLoss : public testing::Test {
 protected:
  void SetUp() override {
    if (!launched_with_mpi()) GTEST_SKIP() << "run by Mpi.ChannelsWorkBetweenProcesses";
    rank_ = mpi_session().rank();
    ASSERT_EQ(mpi_session().num_ranks(), 3);
    for (MPI_Comm& comm : comms_) {
      ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
      ASSERT_EQ(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), MPI_SUCCESS);
    }
  }
  void TearDown() override {
    if (!launched_with_mpi()) return;
    barrier();
    for (MPI_Comm& comm : comms_) EXPECT_EQ(MPI_Comm_free(&comm), MPI_SUCCESS);
  }
  static void barrier() { ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS); }
  int rank_ = 0;
  std::vector<MPI_Comm> comms_ = std::vector<MPI_Comm>(4);
};

std::shared_ptr<Bytes> filled(size_t size, int value) {
  return std::make_shared<Bytes>(size, static_cast<std::byte>(value));
}

// Calls `step` until it is true; false when that takes too long.
bool until(const std::function<bool()>& step) {
  const auto deadline = Clock::now() + kLimit;
  while (!step()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_F(MpiRanksLoss, ANewEpochEndsTransfersUnderWayAndItsMessagesAreItsOwn) {
  if (rank_ > 0) {
    MpiTransport transport(comms_);
    const int32_t other = 1 - transport.node();
    // Messages that nobody takes and receives that nobody answers.
    std::weak_ptr<Bytes> last;
    for (uint32_t tag = 0; tag < 3; ++tag) {
      const auto sent = filled(kSizes[tag], 1), wanted = filled(1000, 0);
      transport.send(other, transfer_tag(1, tag, 0), *sent, sent);
      transport.receive(other, transfer_tag(1, tag + 100, 0), *wanted, wanted);
      last = sent;
    }
    const Transport::Request old = transport.send(other, transfer_tag(1, 7, 0), {}, filled(0, 0));
    transport.begin_epoch(2);
    EXPECT_THROW(transport.test(old), InternalError);
    EXPECT_FALSE(last.expired()) << "MPI may still read it";
    std::vector<std::pair<Transport::Request, std::shared_ptr<Bytes>>> receives;
    std::vector<Transport::Request> sends;
    for (uint32_t tag = 0; tag < 3; ++tag) {
      const auto sent = filled(kSizes[tag], 2), wanted = filled(kSizes[tag], 0);
      sends.push_back(transport.send(other, transfer_tag(2, tag, 0), *sent, sent));
      receives.emplace_back(transport.receive(other, transfer_tag(2, tag, 0), *wanted, wanted), wanted);
    }
    for (Transport::Request request : sends) ASSERT_TRUE(until([&] { return transport.test(request); }));
    for (auto& [request, wanted] : receives) {
      ASSERT_TRUE(until([&, request = request] { return transport.test(request); }));
      EXPECT_EQ(*wanted, *filled(wanted->size(), 2));
    }
    // The other side takes what it never asked for, so that nothing is held any more.
    EXPECT_TRUE(until([&] {
      transport.tidy();
      return transport.num_abandoned() == 0 && last.expired();
    }));
    int done = 0;
    MPI_Request all = MPI_REQUEST_NULL;
    ASSERT_EQ(MPI_Isend(&done, 0, MPI_INT, other + 1, 99, MPI_COMM_WORLD, &all), MPI_SUCCESS);
    MPI_Request theirs = MPI_REQUEST_NULL;
    ASSERT_EQ(MPI_Irecv(&done, 0, MPI_INT, other + 1, 99, MPI_COMM_WORLD, &theirs), MPI_SUCCESS);
    for (MPI_Request* request : {&all, &theirs}) {
      EXPECT_TRUE(until([&] {
        transport.tidy();
        return MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
      }));
    }
  }
}

TEST_F(MpiRanksLoss, ALostNodeHoldsUpNobodyAndItsMessagesAreDropped) {
  MpiControl control(comms_[0]);
  if (rank_ == 0) {
    for (int i = 0; i < 3; ++i) control.send(1, {MessageKind::kFeed, filled(8, i), filled(4'000'000, i)});
    EXPECT_FALSE(until([&, end = Clock::now() + std::chrono::milliseconds(100)] {
                   control.progress();
                   return Clock::now() > end;
                 }) &&
                 !control.outstanding())
        << "node 1 takes nothing";
    control.set_lost(1);
    control.send(1, {MessageKind::kFeed, filled(8, 4), nullptr});
    control.send(0, {MessageKind::kFeed, filled(8, 5), nullptr});
    EXPECT_TRUE(until([&] {
      control.progress();
      return !control.outstanding();
    }));
    EXPECT_TRUE(control.has_lost());
    EXPECT_GT(control.num_abandoned(), 0U);
  }
  barrier();  // node 1 is back
  if (rank_ > 0) {
    if (rank_ == 2) control.send(kController, {MessageKind::kGoodbye, filled(8, 6), nullptr});
    std::optional<Envelope> got;
    EXPECT_TRUE(until([&] {
      control.progress();
      if (!got) got = control.inbox().try_pop();
      return got.has_value() && !control.outstanding();
    }));
    EXPECT_EQ(*got->message.head, *filled(8, rank_ == 1 ? 5 : 0));
    if (rank_ == 1) control.send(kController, {MessageKind::kGoodbye, filled(8, 7), nullptr});
  }
  const uint64_t wanted = rank_ == 0 ? 1 : 0;
  std::optional<Envelope> got;
  EXPECT_TRUE(until([&] {
    control.progress();
    if (rank_ == 0 && !got) got = control.inbox().try_pop();
    return control.num_abandoned() == 0 && !control.outstanding() &&
           (rank_ > 0 || (control.frames_from(0) >= wanted && control.frames_from(1) >= wanted && got));
  }));
  if (rank_ == 0) {
    EXPECT_EQ(got->from, 0) << "what a lost node says isn't delivered";
    EXPECT_FALSE(control.inbox().try_pop().has_value());
  }
  // Everybody goes on until all have what they wait for.
  MPI_Request all = MPI_REQUEST_NULL;
  ASSERT_EQ(MPI_Ibarrier(comms_[1], &all), MPI_SUCCESS);
  EXPECT_TRUE(until([&] {
    control.progress();
    int done = 0;
    return MPI_Test(&all, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
  }));
}

TEST_F(MpiRanksLoss, SilenceIsNoticedAndWhoComesBackIsToldThatItWasGivenUp) {
  MpiControl control(comms_[0]);
  Liveness liveness(control, rank_ - 1, 2, {std::chrono::seconds(1), kLimit}, {});
  std::vector<std::pair<int32_t, std::string>> lost;
  liveness.set_on_lost([&](int32_t address, const std::string& cause) { lost.emplace_back(address, cause); });
  const auto step = [&] {
    control.progress();
    EXPECT_FALSE(liveness.progress()) << "heartbeats keep nobody awake";
    return false;
  };
  if (rank_ == 2) {  // says nothing until rank 0 has noticed
    ASSERT_EQ(MPI_Recv(nullptr, 0, MPI_BYTE, 0, 98, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
  }
  EXPECT_TRUE(until([&] { return step() || rank_ == 1 || !lost.empty(); }));
  if (rank_ == 0) {
    ASSERT_EQ(lost.size(), 1U);
    EXPECT_EQ(lost[0].first, 1);
    EXPECT_TRUE(lost[0].second.starts_with("it has been silent for 1.")) << lost[0].second;
    EXPECT_FALSE(liveness.all_lost_are_gone());
    ASSERT_EQ(MPI_Send(nullptr, 0, MPI_BYTE, 2, 98, MPI_COMM_WORLD), MPI_SUCCESS);
  } else if (rank_ == 2) {
    ASSERT_EQ(lost.size(), 1U);
    EXPECT_EQ(lost[0].first, kController);
    EXPECT_NE(lost[0].second.find("was given up"), std::string::npos) << lost[0].second;
  }
  // Rank 0 answers until rank 2 has it, and rank 1 is never lost.
  MPI_Request all = MPI_REQUEST_NULL;
  ASSERT_EQ(MPI_Ibarrier(comms_[1], &all), MPI_SUCCESS);
  EXPECT_TRUE(until([&] {
    step();
    int done = 0;
    return MPI_Test(&all, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done;
  }));
  EXPECT_EQ(lost.size(), rank_ == 1 ? 0U : 1U);
}

TEST(PeerProcess, IsSeenToEndAtOnceAndCanBeEnded) {
  if (launched_with_mpi()) GTEST_SKIP() << "once is enough";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  PeerProcess first(3, child);
  const PeerProcess process = std::move(first);
  EXPECT_EQ(process.address(), 3);
  EXPECT_FALSE(process.is_gone());
  EXPECT_FALSE(process.is_stopped());
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  EXPECT_TRUE(until([&] { return process.is_stopped(); }));
  process.end();
  EXPECT_TRUE(until([&] { return process.is_gone(); })) << "also before its parent has asked";
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(process.is_gone());
  EXPECT_NE(process_space(), "");
}

}  // namespace
}  // namespace dtorch
