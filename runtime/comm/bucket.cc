#include "runtime/comm/bucket.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/comm/transfer_message.h"

namespace dtorch {

// The members' transport: what they send or receive in one stage with one node is one message of the real one, which
// begins when the last of them has come.
class Bucket::Messages final : public Transport {
 public:
  explicit Messages(const std::vector<Member>& members) {
    for (const Member& member : members) {
      for (size_t stage = 0; stage < member.plan->stages.size(); ++stage) {
        for (const auto& [node, bytes] : member.plan->stages[stage].send_bytes) expect(true, stage, node, member);
        for (const auto& [node, bytes] : member.plan->stages[stage].receive_bytes) expect(false, stage, node, member);
      }
    }
  }
  void use(Transport& transport) { transport_ = &transport; }

  int32_t node() const override { return transport_->node(); }
  Request send(int32_t to, uint32_t tag, std::span<const std::byte> buffer, Owner owner) override {
    Part part{.tag = tag, .out = buffer, .owner = std::move(owner)};
    return add(true, to, std::move(part));
  }
  Request receive(int32_t from, uint32_t tag, std::span<std::byte> buffer, Owner owner) override {
    Part part{.tag = tag, .in = buffer, .owner = std::move(owner)};
    return add(false, from, std::move(part));
  }
  bool test(Request request) override {
    Group& group = *requests_.at(request);
    if (group.parts.size() < group.expected) return false;
    if (!group.done) {
      if (!transport_->test(group.request)) return false;
      group.done = true;
      if (!group.is_send) unpack(group);
      group.memory.reset();
    }
    requests_.erase(request);
    return true;
  }
  // The real one withdraws everything; the bucket is dropped then.
  void begin_epoch(uint32_t) override {}
  bool needs_polling() const override { return transport_->needs_polling(); }
  int64_t messages_sent() const override { return transport_->messages_sent(); }
  int64_t bytes_sent() const override { return transport_->bytes_sent(); }

 private:
  struct Part {
    uint32_t tag = 0;
    std::span<const std::byte> out = {};
    std::span<std::byte> in = {};
    Owner owner;
    size_t size() const { return out.size() + in.size(); }
  };
  struct Group {
    bool is_send = false;
    size_t expected = 0;
    uint64_t first_number = 0;
    std::vector<Part> parts;
    std::shared_ptr<std::byte[]> memory;
    size_t size = 0;
    Request request = 0;
    bool done = false;
  };
  using Key = std::tuple<bool, size_t, int32_t>;  // sends, stage, other node

  static constexpr uint32_t kStageMask = kMaxStages - 1;

  void expect(bool is_send, size_t stage, int32_t node, const Member& member) {
    Group& group = groups_[{is_send, stage, node}];
    if (group.expected++ == 0) group.first_number = member.number;
    group.is_send = is_send;
  }

  Request add(bool is_send, int32_t node, Part part) {
    Group& group = groups_.at({is_send, part.tag & kStageMask, node});
    DTORCH_CHECK(group.parts.size() < group.expected, "a transfer of a bucket has more messages than its plan");
    group.parts.push_back(std::move(part));
    requests_[++last_request_] = &group;
    if (group.parts.size() == group.expected) start(group, node);
    return last_request_;
  }

  // Members come to a stage in any order; a message has them in that of their numbers, by which tags go up but for a
  // wrap of the numbers.
  void start(Group& group, int32_t node) {
    const uint32_t first = static_cast<uint32_t>(group.first_number & 0xfffff) << 4;
    const auto distance = [&](const Part& part) { return (part.tag - first) & 0xffffffu; };
    std::sort(group.parts.begin(), group.parts.end(),
              [&](const Part& a, const Part& b) { return distance(a) < distance(b); });
    const uint32_t tag = group.parts.front().tag;
    for (const Part& part : group.parts) group.size += align_part(part.size());
    group.memory = std::make_shared_for_overwrite<std::byte[]>(group.size);
    const std::span<std::byte> bytes(group.memory.get(), group.size);
    if (!group.is_send) {
      group.request = transport_->receive(node, tag, bytes, group.memory);
      return;
    }
    size_t at = 0;
    for (const Part& part : group.parts) {
      std::memcpy(group.memory.get() + at, part.out.data(), part.out.size());
      std::memset(group.memory.get() + at + part.size(), 0, align_part(part.size()) - part.size());
      at += align_part(part.size());
    }
    group.request = transport_->send(node, tag, bytes, group.memory);
  }

  static void unpack(Group& group) {
    size_t at = 0;
    for (Part& part : group.parts) {
      std::memcpy(part.in.data(), group.memory.get() + at, part.in.size());
      at += align_part(part.size());
      part.owner.reset();
    }
  }

  Transport* transport_ = nullptr;  // the real one
  std::map<Key, Group> groups_;
  std::map<Request, Group*> requests_;
  Request last_request_ = 0;
};

Bucket::Bucket(std::vector<Member> members)
    : members_(std::move(members)), messages_(std::make_unique<Messages>(members_)) {
  for (const Member& member : members_) set_part_of(*member.transfer, this);
}

// Streams may hold members for longer.
Bucket::~Bucket() {
  for (const Member& member : members_) {
    if (member.transfer) set_part_of(*member.transfer, nullptr);
  }
}

bool Bucket::poll(Transport& transport) {
  messages_->use(transport);
  bool all = true;
  for (Member& member : members_) {
    if (!member.transfer) continue;
    if (member.transfer->poll(*messages_)) {
      set_part_of(*member.transfer, nullptr);
      member.transfer.reset();
    } else {
      all = false;
    }
  }
  return all;
}

bool Bucket::sleeps() const {
  return std::ranges::all_of(members_,
                             [](const Member& member) { return !member.transfer || member.transfer->sleeps(); });
}

std::optional<TransferStatus> Bucket::status() const {
  for (const Member& member : members_) {
    if (member.transfer) return member.transfer->status();
  }
  return std::nullopt;
}

}  // namespace dtorch
