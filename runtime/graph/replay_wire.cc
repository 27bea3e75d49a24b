// Replays on the wire. Flat and small, since one travels every iteration:
//
//   replay := zero:u32 identifier:u8[4] sequence:u64 first_transfer:u64 graph:u32 template:u32 first_call:u32
//             end_call:u32 flags:u16 num_new_varying:u16 num_operands:u32 scalar:u64* operand:u32* new_varying:u32*
//   flags  := 1: an acknowledgement is wanted now, 2: the instance ends, 4: statistics are wanted
//
// The identifier is that of every head (wire.cc). How many operands and scalars there must be follows from the
// template.
#include <string>

#include "runtime/graph/fused_runs.h"
#include "runtime/graph/templates.h"
#include "runtime/graph/transfer_buckets.h"
#include "runtime/graph/wire_internal.h"

namespace dtorch {

namespace {

constexpr MessageKind kKind = MessageKind::kReplay;
constexpr uint16_t kWantsAckNow = 1;
constexpr uint16_t kEnds = 2;
constexpr uint16_t kWantsStatistics = 4;

struct Head {
  uint32_t zero = 0;
  char identifier[4] = {};
  uint64_t sequence = 0;
  uint64_t first_transfer = 0;
  uint32_t graph = 0;
  uint32_t id = 0;
  uint32_t first_call = 0;
  uint32_t end_call = 0;
  uint16_t flags = 0;
  uint16_t num_new_varying = 0;
  uint32_t num_operands = 0;
};
static_assert(sizeof(Head) == 48);

Head head_of(const Message& message) {
  wire::check_envelope(message, kKind);
  if (message.head->size() < sizeof(Head)) wire::fail(kKind, "it is too short");
  Head head;
  std::memcpy(&head, message.head->data(), sizeof head);
  return head;
}

template <class T>
std::byte* put_all(std::byte* at, const std::vector<T>& items) {
  if (!items.empty()) std::memcpy(at, items.data(), items.size() * sizeof(T));
  return at + items.size() * sizeof(T);
}

template <class T>
const std::byte* take_all(const std::byte* at, std::vector<T>& items) {
  if (!items.empty()) std::memcpy(items.data(), at, items.size() * sizeof(T));
  return at + items.size() * sizeof(T);
}

}  // namespace

Message encode(const Replay& fields) {
  DTORCH_CHECK(fields.new_varying.size() <= 0xFFFF, "too many scalars begin to vary at once");
  Head head;
  wire::put_identifier(kKind, head.identifier);
  head.sequence = fields.sequence;
  head.first_transfer = fields.first_transfer;
  head.graph = fields.graph;
  head.id = fields.id;
  head.first_call = fields.first_call;
  head.end_call = fields.end_call;
  head.flags = static_cast<uint16_t>((fields.wants_ack_now ? kWantsAckNow : 0) | (fields.ends ? kEnds : 0) |
                                     (fields.wants_statistics ? kWantsStatistics : 0));
  head.num_new_varying = static_cast<uint16_t>(fields.new_varying.size());
  head.num_operands = static_cast<uint32_t>(fields.operands.size());
  Bytes bytes(sizeof head + fields.scalars.size() * sizeof(Scalar) +
              (fields.operands.size() + fields.new_varying.size()) * sizeof(uint32_t));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::byte* at = put_all(bytes.data() + sizeof head, fields.scalars);
  put_all(put_all(at, fields.operands), fields.new_varying);
  return {kKind, std::make_shared<const Bytes>(std::move(bytes)), nullptr, fields.epoch};
}

GraphId graph_of_replay(const Message& message) { return head_of(message).graph; }

Replay take_replay(const Message& message, KnownTemplates& known) {
  const Head head = head_of(message);
  const auto require = [](bool condition, const char* what) {
    if (!condition) wire::fail(kKind, what);
  };
  require(head.zero == 0, "it begins with something");
  require((head.flags & ~(kWantsAckNow | kEnds | kWantsStatistics)) == 0, "it has unknown flags");
  require(head.id < known.by_id.size() && known.by_id[head.id].body, "it is of an undefined template");
  KnownTemplates::Known& of = known.by_id[head.id];
  const TemplateBody& body = *of.body;
  require(head.first_call <= head.end_call && head.end_call <= body.num_calls(), "its calls are out of range");
  require(head.end_call == 0 || !is_fused_with_next(body.calls().operators[head.end_call - 1]), "it cuts a fused run");
  require(head.end_call == 0 || !is_sent_with_next(body.calls().operators[head.end_call - 1]), "it cuts a bucket");
  require(known.current == TemplateBody::kNever ? head.first_call == 0
                                                : known.current == head.id && known.next_call == head.first_call,
          "it doesn't go on where the instance before it has ended");

  Replay fields;
  fields.epoch = message.epoch;
  fields.sequence = head.sequence;
  fields.graph = head.graph;
  fields.first_transfer = head.first_transfer;
  fields.id = head.id;
  fields.first_call = head.first_call;
  fields.end_call = head.end_call;
  fields.wants_ack_now = (head.flags & kWantsAckNow) != 0;
  fields.wants_statistics = (head.flags & kWantsStatistics) != 0;
  fields.ends = (head.flags & kEnds) != 0;
  fields.body = of.body;
  require(fields.ends || head.end_call < body.num_calls(), "it has the last call and doesn't end");

  const size_t words = size_t{head.num_operands} + head.num_new_varying;
  const size_t rest = message.head->size() - sizeof(Head);
  require(words <= rest / sizeof(uint32_t) && (rest - words * sizeof(uint32_t)) % sizeof(Scalar) == 0,
          "its sizes don't add up");
  fields.scalars.resize((rest - words * sizeof(uint32_t)) / sizeof(Scalar));
  fields.operands.resize(head.num_operands);
  fields.new_varying.resize(head.num_new_varying);
  const std::byte* at = take_all(message.head->data() + sizeof(Head), fields.scalars);
  take_all(take_all(at, fields.operands), fields.new_varying);

  size_t num_operands = body.externals(head.first_call, head.end_call).size();
  if (fields.ends && head.end_call < body.num_calls()) num_operands += body.temporaries_alive(head.end_call).size();
  require(fields.operands.size() == num_operands, "it doesn't have the operands of its calls");
  for (OperandId slot : fields.operands) require(slot <= kMaxOperand, "an operand number is out of range");
  const uint32_t first_scalar = body.scalars_before(head.first_call);
  const uint32_t end_scalar = body.scalars_before(head.end_call);
  VaryingScalars more;
  if (!fields.new_varying.empty()) more = of.varying;
  const VaryingScalars& varying = fields.new_varying.empty() ? of.varying : more;
  for (uint32_t scalar : fields.new_varying) {
    require(scalar >= first_scalar && scalar < end_scalar, "a scalar that begins to vary is out of range");
    require(!varying.contains(scalar), "a scalar begins to vary twice");
    more.add(scalar);
  }
  require(fields.scalars.size() == varying.range(first_scalar, end_scalar).size(),
          "it doesn't have the scalars of its calls");

  if (!fields.new_varying.empty()) of.varying = std::move(more);
  known.current = fields.ends ? TemplateBody::kNever : head.id;
  known.next_call = head.end_call;
  return fields;
}

}  // namespace dtorch
