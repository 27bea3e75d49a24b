// MPI channels between real processes. The first test runs this program again under mpirun with three ranks; there, and
// only there, the others run, each on all ranks.
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/comm/launcher.h"
#include "runtime/comm/mpi_control.h"
#include "runtime/comm/mpi_session.h"
#include "runtime/comm/mpi_transport.h"
#include "tests/comm/mpi_environment.h"

namespace dtorch {
namespace {

TEST(Mpi, ChannelsWorkBetweenProcesses) {
  if (launched_with_mpi()) GTEST_SKIP() << "already under mpirun";
  char self[4096] = "";
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
  const std::string command = std::string("timeout 300 mpirun --oversubscribe --bind-to none -np 3 ") + self +
                              " --gtest_brief=1 '--gtest_filter=MpiRanks*'";
  const int status = std::system(command.c_str());
  ASSERT_NE(status, -1);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command;
}

TEST(LaunchedWithMpi, ReadsWhatLaunchersSay) {
  if (launched_with_mpi()) GTEST_SKIP() << "these would replace what mpirun said";
  const auto answer = [](std::vector<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) EXPECT_EQ(setenv(name, value, 1), 0);
    const bool result = launched_with_mpi();
    for (const auto& [name, value] : variables) EXPECT_EQ(unsetenv(name), 0);
    return result;
  };
  EXPECT_FALSE(answer({}));
  EXPECT_TRUE(answer({{"OMPI_COMM_WORLD_SIZE", "3"}}));
  EXPECT_FALSE(answer({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}));
  EXPECT_TRUE(answer({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}));
  EXPECT_FALSE(answer({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_TRUE(answer({{"PMIX_RANK", "0"}}));
}

class MpiRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (!launched_with_mpi()) GTEST_SKIP() << "run by Mpi.ChannelsWorkBetweenProcesses";
    session_ = &mpi_session();
    ASSERT_EQ(session_->num_ranks(), 3);
  }
  MpiSession* session_ = nullptr;
};

SharedBytes pattern(size_t size, size_t seed) {
  auto bytes = std::make_shared<Bytes>(size);
  for (size_t i = 0; i < size; ++i) (*bytes)[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

// Sizes around every boundary, of head and payload; no payload and an empty one differ.
struct Sizes {
  size_t head;
  std::optional<size_t> payload;
};
const std::vector<Sizes> kSizes{{0, {}},         {1, {}},      {100, 0},       {16360, {}},     {16361, {}},
                                {100, 16260},    {100, 16261}, {0, 1'000'000}, {3, 5},          {70'000, {}},
                                {1'000'000, 17}, {16'384, 0},  {10, {}},       {4'000'000, {}}, {5'000, 3'000}};

void expect_messages(ControlEndpoint& endpoint, int32_t from, int repeats) {
  for (int i = 0; i < repeats; ++i) {
    for (size_t k = 0; k < kSizes.size(); ++k) {
      const auto envelope = endpoint.inbox().pop_for(std::chrono::seconds(60));
      ASSERT_TRUE(envelope.has_value());
      ASSERT_EQ(envelope->from, from);
      ASSERT_EQ(*envelope->message.head, *pattern(kSizes[k].head, k));
      ASSERT_EQ(envelope->message.payload != nullptr, kSizes[k].payload.has_value());
      if (kSizes[k].payload) {
        ASSERT_EQ(*envelope->message.payload, *pattern(*kSizes[k].payload, k + 1));
      }
    }
  }
}

void send_messages(ControlEndpoint& endpoint, int32_t to, int repeats) {
  for (int i = 0; i < repeats; ++i) {
    for (size_t k = 0; k < kSizes.size(); ++k) {
      endpoint.send(to, {MessageKind::kFeed, pattern(kSizes[k].head, k),
                         kSizes[k].payload ? pattern(*kSizes[k].payload, k + 1) : nullptr});
    }
  }
}

// Everybody must have received before anybody's channel goes.
void barrier() { ASSERT_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS); }

TEST_F(MpiRanks, ControlMessagesOfAllSizesArriveInOrder) {
  CommThread comm(session_->make_transport(), {&session_->control_progress()},
                  [](std::exception_ptr) { ADD_FAILURE(); });
  ControlEndpoint& control = session_->control();
  if (session_->rank() == 0) {
    send_messages(control, 0, 3);
    send_messages(control, 1, 3);
    const auto reply = control.inbox().pop_for(std::chrono::seconds(60));
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->from, 1);
    EXPECT_GE(control.messages_sent(), 6 * static_cast<int64_t>(kSizes.size()));
  } else if (session_->rank() == 1) {
    expect_messages(control, kController, 3);
    send_messages(control, 1, 2);
  } else {
    // Two senders: the order within each is kept, so take them one after the other by sender.
    std::vector<Envelope> from_node;
    size_t next = 0;
    while (next < 3 * kSizes.size() || from_node.size() < 2 * kSizes.size()) {
      auto envelope = control.inbox().pop_for(std::chrono::seconds(60));
      ASSERT_TRUE(envelope.has_value());
      if (envelope->from != kController) {
        from_node.push_back(std::move(*envelope));
      } else {
        EXPECT_EQ(envelope->message.head->size(), kSizes[next++ % kSizes.size()].head);
      }
    }
    for (size_t i = 0; i < from_node.size(); ++i)
      EXPECT_EQ(from_node[i].message.head->size(), kSizes[i % kSizes.size()].head);
    control.send(kController, {MessageKind::kGoodbye, pattern(8, 0), nullptr});
  }
  EXPECT_TRUE(comm.stop_within(std::chrono::seconds(60)));
  barrier();
}

TEST_F(MpiRanks, AFloodIsTakenWithoutLoss) {
  CommThread comm(session_->make_transport(), {&session_->control_progress()},
                  [](std::exception_ptr) { ADD_FAILURE(); });
  constexpr uint32_t kMessages = 20'000;
  if (session_->rank() == 0) {
    for (uint32_t i = 0; i < kMessages; ++i) {
      auto head = std::make_shared<Bytes>(sizeof(i));
      std::memcpy(head->data(), &i, sizeof(i));
      for (int32_t node : {0, 1}) session_->control().send(node, {MessageKind::kPiece, head, nullptr});
    }
  } else {
    for (uint32_t i = 0; i < kMessages; ++i) {
      const auto envelope = session_->control().inbox().pop_for(std::chrono::seconds(60));
      ASSERT_TRUE(envelope.has_value());
      uint32_t got = 0;
      std::memcpy(&got, envelope->message.head->data(), sizeof(got));
      ASSERT_EQ(got, i);
    }
  }
  EXPECT_TRUE(comm.stop_within(std::chrono::seconds(60)));
  barrier();
}

TEST_F(MpiRanks, BulkControlMessagesTravelInChunks) {
  MPI_Comm comm = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
  {
    MpiControl control(comm, 1000);
    CommThread thread(nullptr, {&control}, [](std::exception_ptr) { ADD_FAILURE(); });
    if (session_->rank() == 0) send_messages(control, 1, 1);
    if (session_->rank() == 2) expect_messages(control, kController, 1);
    EXPECT_TRUE(thread.stop_within(std::chrono::seconds(60)));
    thread.stop(true);
    barrier();
  }
  ASSERT_EQ(MPI_Comm_free(&comm), MPI_SUCCESS);
}

void wait_for(Transport& transport, Transport::Request request) {
  while (!transport.test(request)) std::this_thread::yield();
}

TEST_F(MpiRanks, DataTravelsInChunksAndByTag) {
  MPI_Comm comm = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
  if (session_->rank() > 0) {
    MpiTransport transport({comm}, 1000);
    const int32_t node = session_->node(), other = 1 - node;
    EXPECT_EQ(transport.node(), node);
    std::vector<Transport::Request> requests;
    std::vector<Bytes> received;
    std::vector<SharedBytes> sent;
    const std::vector<size_t> sizes{0, 1, 999, 1000, 1001, 2000, 123'456};
    received.reserve(sizes.size());
    for (size_t i = sizes.size(); i-- > 0;) {
      received.emplace_back(sizes[i]);
      requests.push_back(transport.receive(other, static_cast<uint32_t>(i), received.back()));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      sent.push_back(pattern(sizes[i], i + static_cast<size_t>(node)));
      requests.push_back(transport.send(other, static_cast<uint32_t>(i), *sent.back()));
    }
    for (Transport::Request request : requests) wait_for(transport, request);
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(received[sizes.size() - 1 - i], *pattern(sizes[i], i + static_cast<size_t>(other)));
    }
    EXPECT_EQ(transport.messages_sent(), static_cast<int64_t>(sizes.size()));
    EXPECT_EQ(transport.completed(), 2 * sizes.size());
    EXPECT_THROW(transport.test(requests[0]), InternalError);
  }
  barrier();
  ASSERT_EQ(MPI_Comm_free(&comm), MPI_SUCCESS);
}

TEST_F(MpiRanks, AMessageOfAnotherLengthIsAFault) {
  MPI_Comm comm = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
  ASSERT_EQ(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), MPI_SUCCESS);
  if (session_->rank() > 0) {
    MpiTransport transport({comm});
    const Bytes bytes(100);
    if (session_->rank() == 1) {
      for (uint32_t tag : {1U, 2U}) wait_for(transport, transport.send(1, tag, bytes));
    } else {
      Bytes longer(101), shorter(99);
      EXPECT_THROW(wait_for(transport, transport.receive(0, 1, longer)), RuntimeFault);
      EXPECT_THROW(wait_for(transport, transport.receive(0, 2, shorter)), RuntimeFault);
    }
  }
  barrier();
  ASSERT_EQ(MPI_Comm_free(&comm), MPI_SUCCESS);
}

TEST_F(MpiRanks, ADestroyedTransportWithdrawsItsReceives) {
  if (session_->rank() > 0) {
    auto transport = session_->make_transport();
    Bytes buffer(1 << 20);
    transport->receive(1 - session_->node(), 77, buffer);
    transport.reset();
  }
  barrier();  // MPI_Finalize at the end would hang or crash on what was left
}

}  // namespace
}  // namespace dtorch
