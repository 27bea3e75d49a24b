#include "runtime/accelerator/fake/fake_communicator.h"

#include <cstring>
#include <map>

#include "runtime/accelerator/fake/fake_faults.h"
#include "runtime/accelerator/fake/fake_meeting.h"
#include "runtime/accelerator/fake/fake_memory.h"
#include "runtime/accelerator/fake/fake_stream.h"
#include "runtime/base/error.h"

namespace dtorch::fake {
namespace {

// Ids that somebody waits for.
struct Meetings {
  std::mutex mutex;
  uint64_t last_id = 0;  // under mutex, as the next
  std::map<uint64_t, std::weak_ptr<Meeting>> by_id;
};
Meetings& meetings() {
  static auto* instance = new Meetings;
  return *instance;
}

class FakeCommunicator;

// The messages of the group that this thread has open.
struct Group {
  struct Entry {
    FakeCommunicator* communicator = nullptr;
    Stream* stream = nullptr;
    std::vector<Message> messages;
  };
  int depth = 0;
  std::vector<Entry> entries;
  void add(FakeCommunicator& communicator, Stream& stream, Message message) {
    DTORCH_CHECK(depth > 0, "a send or receive outside of a group");
    for (Entry& entry : entries) {
      if (entry.communicator != &communicator) continue;
      DTORCH_CHECK(entry.stream == &stream, "a group's messages of one rank are on one stream");
      entry.messages.push_back(std::move(message));
      return;
    }
    entries.push_back({&communicator, &stream, {}});
    entries.back().messages.push_back(std::move(message));
  }
};
thread_local Group group;

class FakeCommunicator final : public Communicator {
 public:
  FakeCommunicator(std::shared_ptr<Meeting> meeting, int32_t rank, Driver& driver)
      : meeting_(std::move(meeting)), rank_(rank), driver_(driver) {}
  int32_t rank() const override { return rank_; }
  int32_t num_ranks() const override { return meeting_->num_ranks(); }

  void all_reduce(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                  ReduceOp reduce) override {
    enqueue(stream, {Kind::kAllReduce, at(send, count, dtype), at(receive, count, dtype), count, dtype, reduce, 0});
  }
  void all_gather(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count,
                  DType dtype) override {
    enqueue(stream,
            {Kind::kAllGather, at(send, count, dtype), at(receive, count * num_ranks(), dtype), count, dtype, {}, 0});
  }
  void reduce_scatter(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                      ReduceOp reduce) override {
    enqueue(stream, {Kind::kReduceScatter, at(send, count * num_ranks(), dtype), at(receive, count, dtype), count,
                     dtype, reduce, 0});
  }
  void broadcast(DeviceStream& stream, const std::byte* send, std::byte* receive, int64_t count, DType dtype,
                 int32_t root) override {
    const NativeTensor source = rank_ == root ? at(send, count, dtype) : NativeTensor();
    enqueue(stream, {Kind::kBroadcast, source, at(receive, count, dtype), count, dtype, {}, root});
  }
  void send(DeviceStream& stream, const std::byte* data, int64_t count, DType dtype, int32_t to) override {
    group.add(*this, static_cast<Stream&>(stream), {true, to, at(data, count, dtype), false});
  }
  void receive(DeviceStream& stream, std::byte* data, int64_t count, DType dtype, int32_t from) override {
    group.add(*this, static_cast<Stream&>(stream), {false, from, at(data, count, dtype), false});
  }

  std::optional<std::string> failure() override { return meeting_->failure(); }
  void cancel() override {
    meeting_->cancel(rank_);
    driver_.poke();
  }
  std::unique_ptr<Communicator> split(int32_t, int32_t) override { return nullptr; }

  void enqueue_group(Stream& stream, std::vector<Message> messages) {
    const auto shared = std::make_shared<std::vector<Message>>(std::move(messages));
    push(stream, [meeting = meeting_, rank = rank_, number = num_groups_++, shared] {
      return meeting->meet(rank, number, *shared);
    });
  }

 private:
  static NativeTensor at(const std::byte* data, int64_t count, DType dtype) {
    return memory_at(data, count * size_of(dtype));
  }
  void enqueue(DeviceStream& stream, Part part) {
    const auto shared = std::make_shared<const Part>(std::move(part));
    push(static_cast<Stream&>(stream), [meeting = meeting_, rank = rank_, number = num_collectives_++, shared] {
      return meeting->meet(rank, number, *shared);
    });
  }
  void push(Stream& stream, std::function<bool()> is_over) {
    if (meeting_->is_cancelled(rank_)) throw RuntimeFault("the communicator has been cancelled");
    const int32_t swap_every = planted().swap_every;
    if (swap_every != 0 && rank_ == 0 && !held_ && ++num_given_ % static_cast<uint64_t>(swap_every) == 0) {
      held_ = std::move(is_over);
      return;
    }
    push_now(stream, std::move(is_over));
    if (held_) push_now(stream, std::exchange(held_, nullptr));
  }
  void push_now(Stream& stream, std::function<bool()> is_over) {
    stream.push(
        [meeting = meeting_, rank = rank_] {
          if (const std::optional<std::string> what = meeting->take_failure(rank)) throw RuntimeFault(*what);
        },
        [is_over = std::move(is_over), was_over = false]() mutable {
          was_over = was_over || is_over();  // it is asked again until its turn comes
          return was_over;
        });
  }

  const std::shared_ptr<Meeting> meeting_;
  const int32_t rank_;
  Driver& driver_;
  // Messages are matched by pairs, so that a rank that has none in a group needs no part in it.
  uint64_t num_collectives_ = 0, num_groups_ = 0;
  uint64_t num_given_ = 0;
  std::function<bool()> held_;  // of a planted swap
};

}  // namespace

CommunicatorFactory::Id Communicators::new_id() {
  std::lock_guard lock(meetings().mutex);
  const uint64_t number = ++meetings().last_id;
  Id id = {};
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

std::unique_ptr<Communicator> Communicators::join(const Id& id, int32_t rank, int32_t num_ranks, Accelerator&,
                                                  const Patience& patience) {
  uint64_t number = 0;
  std::memcpy(&number, id.data(), sizeof number);
  std::shared_ptr<Meeting> meeting;
  {
    std::lock_guard lock(meetings().mutex);
    std::weak_ptr<Meeting>& known = meetings().by_id[number];
    meeting = known.lock();
    if (!meeting) known = meeting = std::make_shared<Meeting>(num_ranks, patience.deadline_s);
  }
  if (meeting->num_ranks() != num_ranks || !meeting->join(patience.is_over))
    throw RuntimeFault("not every rank joined a communicator of " + std::to_string(num_ranks));
  std::lock_guard lock(meetings().mutex);
  meetings().by_id.erase(number);  // all are here
  return std::make_unique<FakeCommunicator>(std::move(meeting), rank, driver_);
}

void Communicators::group_begin() { ++group.depth; }

void Communicators::group_end() {
  DTORCH_CHECK(group.depth > 0, "a group ends that hasn't begun");
  if (--group.depth != 0) return;
  for (Group::Entry& entry : std::exchange(group.entries, {}))
    entry.communicator->enqueue_group(*entry.stream, std::move(entry.messages));
}

}  // namespace dtorch::fake
