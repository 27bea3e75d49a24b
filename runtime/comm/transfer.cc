// The state machine of a transfer. A stage: post its receives, pack and send, wait for the messages, take large parts,
// build each local destination. Results are delivered before the sends have been taken, so that a transfer never waits
// for what its receiver computes.
#include "runtime/comm/transfer.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/comm/box_memory.h"
#include "runtime/comm/transfer_state.h"

namespace dtorch {
namespace {

// Receives of stage 0 up to this size are posted before the sources are there; larger ones would only hold memory until
// then.
constexpr size_t kEarlyReceiveBytes = 64 << 10;

}  // namespace

uint32_t transfer_tag(uint32_t epoch, uint64_t number, size_t stage) {
  static_assert(Transport::kMaxTag == uint32_t{1} << 30 && kMaxStages == 16);
  return Transport::epoch_bits(epoch) | static_cast<uint32_t>(number & 0xfffff) << 4 | static_cast<uint32_t>(stage);
}

void Transfer::State::post_receives(Transport& transport, uint32_t tag) {
  if (receives_posted) return;
  receives_posted = true;
  for (const auto& [node, bytes] : stage().receive_bytes) {
    Incoming& from = incoming[node];
    from.message = TransferMessage(bytes);
    from.request = transport.receive(node, tag, from.message.bytes(), from.message.owner());
  }
}

void Transfer::State::post_sends(Transport& transport, uint32_t tag) {
  for (const auto& [node, parts] : stage().sends) {
    const auto large = stage().direct_sends.find(node);
    const bool has_large = large != stage().direct_sends.end();
    const std::string* error = &error_of(parts);
    if (error->empty() && has_large) error = &error_of(large->second);
    Outgoing& to = outgoing.emplace_back();
    to.node = node;
    to.message = TransferMessage(stage().send_bytes.at(node));
    if (error->empty())
      to.message.pack(parts, values, stage().stage.reduce);
    else
      to.message.poison(*error);
    if (times) times->note_sent(node, stage().send_bytes.at(node) + (has_large ? bytes_of(large->second) : 0));
    to.request = transport.send(node, tag, to.message.bytes(), to.message.owner());
    if (has_large && error->empty()) post_parts(node, tag, large->second);
  }
}

size_t Transfer::State::bytes_of(std::span<const NodePlan::RemotePart> parts) const {
  int64_t elements = 0;
  for (const NodePlan::RemotePart& part : parts) elements += part.box.num_elements();
  return static_cast<size_t>(elements * size_of(stage().stage.to->dtype));
}

ChunkWalk Transfer::State::walk_of(std::span<const NodePlan::RemotePart> parts) const {
  std::vector<size_t> bytes;
  for (const NodePlan::RemotePart& part : parts) bytes.push_back(bytes_of({&part, 1}));
  return {parts, std::move(bytes), plan.chunk_bytes};
}

// From where they lie, unless that isn't one run or is a part of what is to be sent.
void Transfer::State::post_parts(int32_t node, uint32_t tag, std::span<const NodePlan::RemotePart> parts) {
  std::vector<PartSender::Part> list;
  for (const NodePlan::RemotePart& part : parts) {
    const NativeTensor& source = values.at(part.source);
    const std::byte* memory = part.folded.empty() ? memory_of(source, part.source_box) : nullptr;
    if (memory != nullptr) {
      list.push_back({memory, std::make_shared<NativeTensor>(source)});
      continue;
    }
    const std::shared_ptr<std::byte[]> packed = message_memory(bytes_of({&part, 1}));
    pack_part(part, values, stage().stage.reduce, packed.get());
    list.push_back({packed.get(), packed});
  }
  part_senders.emplace_back(node, tag, walk_of(parts), std::move(list));
}

bool Transfer::State::receives_arrived(Transport& transport) {
  bool all = true;
  for (auto& [node, from] : incoming) {
    if (from.arrived) continue;
    from.arrived = transport.test(from.request);
    all &= from.arrived;
    if (!from.arrived) continue;
    from.error = from.message.poison_text().value_or("");
    if (!times) continue;
    const auto large = stage().direct_receives.find(node);
    const size_t large_bytes = large == stage().direct_receives.end() ? 0 : bytes_of(large->second);
    times->note_received(node, stage().receive_bytes.at(node) + large_bytes);
  }
  return all;
}

bool Transfer::State::advance_sends(Transport& transport) {
  std::erase_if(outgoing, [&](const Outgoing& to) { return transport.test(to.request); });
  std::erase_if(part_senders, [&](PartSender& to) { return to.advance(transport); });
  return outgoing.empty() && part_senders.empty();
}

const std::string& Transfer::State::error_of(std::span<const NodePlan::RemotePart> parts) const {
  static const std::string none;
  for (const NodePlan::RemotePart& part : parts) {
    if (const std::string& error = error_of_source(part.source); !error.empty()) return error;
    for (const auto& [source, box] : part.folded) {
      if (const std::string& error = error_of_source(source); !error.empty()) return error;
    }
  }
  return none;
}

const std::string& Transfer::State::error_of(const NodePlan::Destination& destination) const {
  static const std::string none;
  for (size_t i = 0; i < destination.num_pieces; ++i) {
    const NodePlan::LocalPiece& piece = stage().pieces[destination.first_piece + i];
    for (size_t k = 0; k < piece.parts.size(); ++k) {
      const int32_t node = piece.parts[k].node;
      const std::string& error = node == NodePlan::kHere ? error_of_source(piece.sources[k]) : incoming.at(node).error;
      if (!error.empty()) return error;
    }
  }
  return none;
}

void Transfer::State::begin_times() {
  times.emplace();
  times->stage = stage_index;
}

void Transfer::State::end_times(Transfer& transfer) {
  times->end();
  transfer.on_stage(*times);
  times.reset();
}

Transfer::Transfer(std::shared_ptr<const NodePlan> plan, uint32_t epoch, uint64_t number)
    : plan_(std::move(plan)), epoch_(epoch), number_(number), state_(std::make_unique<State>(*plan_)) {}
Transfer::~Transfer() = default;

bool Transfer::poll(Transport& transport) {
  State& state = *state_;
  const auto tag = [&] { return transfer_tag(epoch_, number_, state.stage_index); };
  if (state.phase == State::Phase::kStart) {
    size_t bytes = 0;
    for (const auto& [node, body] : state.stage().receive_bytes) bytes += body;
    if (bytes <= kEarlyReceiveBytes) state.post_receives(transport, tag());
    state.phase = State::Phase::kWaitForSources;
  }
  if (state.phase == State::Phase::kWaitForSources) {
    if (!sources_ready()) return false;
    for (int64_t device : plan_->local_sources) {
      if (NativeTensor value = source(device)) {
        state.values[device] = std::move(value);
        continue;
      }
      std::string error = source_error(device);
      if (error.empty()) {
        error = "device " + std::to_string(device) + " has no value";
        failed(device, error);
      }
      state.errors[device] = std::move(error);
    }
    if (wants_times()) state.begin_times();
    state.post_receives(transport, tag());
    state.post_sends(transport, tag());
    state.phase = State::Phase::kReceive;
  }
  while (state.phase == State::Phase::kReceive || state.phase == State::Phase::kParts) {
    state.advance_sends(transport);
    if (state.phase == State::Phase::kReceive) {
      if (!state.receives_arrived(transport)) return false;
      state.begin_results(*this);
      state.receive_parts(tag());
      state.phase = State::Phase::kParts;
    }
    if (!state.advance_parts(transport)) return false;
    state.end_results(*this);
    if (state.times) state.end_times(*this);
    if (++state.stage_index < plan_->stages.size()) {
      if (wants_times()) state.begin_times();
      state.post_receives(transport, tag());
      state.post_sends(transport, tag());
      state.phase = State::Phase::kReceive;
      continue;
    }
    state.charge_shared(*this);
    for (int64_t device : plan_->local_destinations) {
      const auto value = state.values.find(device);
      deliver(device, value == state.values.end() ? NativeTensor() : std::move(value->second),
              state.error_of_source(device));
    }
    state.values.clear();
    state.phase = State::Phase::kSend;
  }
  return state.advance_sends(transport);
}

bool Transfer::sleeps() const { return state_->phase == State::Phase::kWaitForSources; }

std::optional<TransferStatus> Transfer::status() const {
  TransferStatus status{.number = number_};
  switch (state_->phase) {
    case State::Phase::kStart:
    case State::Phase::kWaitForSources:
      break;
    case State::Phase::kReceive:
      status.phase = TransferPhase::kReceives;
      for (const auto& [node, from] : state_->incoming) {
        if (!from.arrived) status.waits_for.push_back(node);
      }
      break;
    case State::Phase::kParts:
      status.phase = TransferPhase::kReceives;
      for (const auto& [node, receiver] : state_->receivers) {
        if (!receiver.done()) status.waits_for.push_back(node);
      }
      break;
    case State::Phase::kSend:
      status.phase = TransferPhase::kSends;
      for (const State::Outgoing& to : state_->outgoing) status.waits_for.push_back(to.node);
      for (const PartSender& to : state_->part_senders) status.waits_for.push_back(to.node());
      break;
  }
  return status;
}

}  // namespace dtorch
