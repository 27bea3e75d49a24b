#include "runtime/accelerator/fake/fake_meeting.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/transfer.h"

namespace dtorch::fake {
namespace {

const char* name_of_kind(Kind kind) {
  switch (kind) {
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kReduceScatter:
      return "reduce_scatter";
    case Kind::kBroadcast:
      break;
  }
  return "broadcast";
}

std::atomic<int64_t> cancelled{0};

void copy_bytes(const std::byte* from, std::byte* to, int64_t num_bytes) {
  if (num_bytes != 0) std::memmove(to, from, static_cast<size_t>(num_bytes));
}

}  // namespace

int64_t num_cancelled() { return cancelled.load(); }

std::string Part::str() const {
  return std::string(name_of_kind(kind)) + " of " + std::to_string(count) + " " + name_of(dtype);
}

Meeting::Meeting(int32_t num_ranks, double deadline_s)
    : deadline_s_(deadline_s), ranks_(static_cast<size_t>(num_ranks)), is_cancelled_(static_cast<size_t>(num_ranks)) {}

bool Meeting::join(const std::function<bool()>& is_over) {
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (++num_joined_ == num_ranks()) joined_.notify_all();
  while (num_joined_ < num_ranks()) {
    joined_.wait_for(lock, std::chrono::milliseconds(20));
    const bool is_late = deadline_s_ > 0 && std::chrono::duration<double>(Clock::now() - begin).count() > deadline_s_;
    if (num_joined_ < num_ranks() && (is_late || is_over())) return false;
  }
  return true;
}

std::optional<std::string> Meeting::failure() const {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) return std::nullopt;
  return failure_;
}

void Meeting::cancel(int32_t rank) {
  std::lock_guard lock(mutex_);
  is_cancelled_[static_cast<size_t>(rank)] = true;
}

bool Meeting::is_cancelled(int32_t rank) const {
  std::lock_guard lock(mutex_);
  return is_cancelled_[static_cast<size_t>(rank)];
}

void Meeting::fail(const std::string& what) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = what;
}

std::string Meeting::who_waits() const {
  std::string text;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::string& doing = ranks_[rank].doing;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) +
            (doing.empty() ? " hasn't come" : " waits in " + doing);
  }
  return text;
}

// True the first time.
bool Meeting::begin_waiting(int32_t rank, uint64_t number, const std::string& what) {
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (!self.doing.empty()) return false;
  self.doing = what + " #" + std::to_string(number);
  self.since = Clock::now();
  self.number = number;
  return true;
}

bool Meeting::is_given_up(int32_t rank) {
  {
    std::lock_guard lock(mutex_);
    if (is_cancelled_[static_cast<size_t>(rank)]) ++cancelled;
    if (is_cancelled_[static_cast<size_t>(rank)] || !failure_.empty())
      return ranks_[static_cast<size_t>(rank)].gave_up = true;
  }
  const std::chrono::duration<double> waited = Clock::now() - ranks_[static_cast<size_t>(rank)].since;
  if (deadline_s_ <= 0 || waited.count() <= deadline_s_) return false;
  fail("a collective stands still: " + who_waits());
  return ranks_[static_cast<size_t>(rank)].gave_up = true;
}

std::optional<std::string> Meeting::take_failure(int32_t rank) {
  if (!std::exchange(ranks_[static_cast<size_t>(rank)].gave_up, false)) return std::nullopt;
  return failure();
}

bool Meeting::meet(int32_t rank, uint64_t number, const Part& part) {
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (begin_waiting(rank, number, part.str())) self.part = &part;
  const auto leave = [&] {
    self.doing.clear();
    self.part = nullptr;
    return true;
  };
  if (self.part == nullptr) return leave();  // done by another rank
  std::vector<const Part*> parts;
  for (const Rank& other : ranks_) {
    if (other.part != nullptr && other.number == number && other.part->kind == part.kind) parts.push_back(other.part);
  }
  if (parts.size() < ranks_.size()) return is_given_up(rank) && leave();
  for (const Part* other : parts) {
    if (other->count == part.count && other->dtype == part.dtype && other->reduce == part.reduce &&
        other->root == part.root) {
      continue;
    }
    fail("ranks of a collective disagree: " + who_waits());
    return is_given_up(rank) && leave();
  }
  run(parts);
  for (Rank& other : ranks_) other.part = nullptr;
  return leave();
}

void Meeting::run(const std::vector<const Part*>& parts) {
  const Part& first = *parts.front();
  const int64_t bytes = first.count * size_of(first.dtype);
  const auto num = static_cast<int64_t>(parts.size());
  const auto fold = [&](int64_t offset, std::byte* result) {
    std::vector<const std::byte*> sources;
    for (const Part* part : parts) sources.push_back(part->send.data() + offset);
    fold_parts(sources, first.count, first.dtype, first.reduce, first.reduce == ReduceOp::kAvg ? num : 1, result);
  };
  std::vector<std::byte> all(static_cast<size_t>(bytes * num));  // whatever is in place
  for (int64_t i = 0; i < num; ++i) {
    std::byte* const part = all.data() + i * bytes;
    if (first.kind == Kind::kAllGather) copy_bytes(parts[static_cast<size_t>(i)]->send.data(), part, bytes);
    if (first.kind == Kind::kReduceScatter) fold(i * bytes, part);
  }
  if (first.kind == Kind::kAllReduce) fold(0, all.data());
  if (first.kind == Kind::kBroadcast)
    copy_bytes(parts[static_cast<size_t>(first.root)]->send.data(), all.data(), bytes);
  for (int64_t i = 0; i < num; ++i) {
    std::byte* const receive = parts[static_cast<size_t>(i)]->receive.data();
    if (first.kind == Kind::kAllGather)
      copy_bytes(all.data(), receive, bytes * num);
    else
      copy_bytes(all.data() + (first.kind == Kind::kReduceScatter ? i * bytes : 0), receive, bytes);
  }
}

bool Meeting::meet(int32_t rank, uint64_t number, std::vector<Message>& messages) {
  if (begin_waiting(rank, number, "a group of " + std::to_string(messages.size()) + " messages")) {
    for (Message& message : messages) {
      const auto line = message.is_send ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
      (message.is_send ? sends_ : receives_)[line].push_back(&message);
    }
  }
  for (Message& message : messages) {
    const auto line = message.is_send ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
    std::deque<Message*>& sends = sends_[line];
    std::deque<Message*>& receives = receives_[line];
    while (!sends.empty() && !receives.empty()) {
      const NativeTensor& from = sends.front()->memory;
      const NativeTensor& to = receives.front()->memory;
      if (from.num_bytes() != to.num_bytes())
        fail("rank " + std::to_string(line.first) + " sends " + std::to_string(from.num_bytes()) + " bytes, rank " +
             std::to_string(line.second) + " receives " + std::to_string(to.num_bytes()));
      else
        copy_bytes(from.data(), to.data(), from.num_bytes());
      sends.front()->is_done = receives.front()->is_done = true;
      sends.pop_front();
      receives.pop_front();
    }
  }
  const bool is_done = std::ranges::all_of(messages, [](const Message& message) { return message.is_done; });
  if (!is_done && !is_given_up(rank)) return false;
  for (Message& message : messages) {
    if (message.is_done) continue;
    const auto line = message.is_send ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
    std::erase((message.is_send ? sends_ : receives_)[line], &message);
  }
  ranks_[static_cast<size_t>(rank)].doing.clear();
  return true;
}

}  // namespace dtorch::fake
