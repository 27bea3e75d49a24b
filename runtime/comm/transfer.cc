// The state machine of a transfer. A stage: post its receives, pack and send, wait for the messages, build each local
// destination. Results are delivered before the sends have been taken, so that a transfer never waits for what its
// receiver computes.
#include "runtime/comm/transfer.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "runtime/base/error.h"
#include "runtime/comm/transfer_message.h"

namespace dtorch {
namespace {

// Receives of stage 0 up to this size are posted before the sources are there; larger ones would only hold memory until
// then.
constexpr size_t kEarlyReceiveBytes = 64 << 10;

bool is_whole(const Box& box, const Shape& shape) {
  return box.size == shape &&
         std::all_of(box.offset.begin(), box.offset.end(), [](int64_t offset) { return offset == 0; });
}

// Number of elements before the box's first, when the box is one run of memory of a contiguous tensor; else -1.
int64_t contiguous_offset(const Shape& shape, const Box& box) {
  bool cut = false;  // a dim further in was cut: those outside must have size 1
  int64_t offset = 0;
  int64_t stride = 1;
  for (int64_t dim = shape.ndim() - 1; dim >= 0; --dim) {
    if (cut && box.size[dim] != 1) return -1;
    cut = cut || box.size[dim] != shape[dim];
    offset += box.offset[dim] * stride;
    stride *= shape[dim];
  }
  return offset;
}

// The memory of a box of a tensor, or null where it isn't one run.
std::byte* memory_of(const NativeTensor& tensor, const Box& box) {
  if (!tensor.is_contiguous()) return nullptr;
  const int64_t offset = contiguous_offset(tensor.local_shape(), box);
  return offset < 0 ? nullptr : tensor.data() + offset * size_of(tensor.dtype());
}

using Memory = std::unique_ptr<std::byte[]>;
Memory allocate(int64_t bytes) { return std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes)); }

}  // namespace

uint32_t transfer_tag(uint32_t epoch, uint64_t number, size_t stage) {
  static_assert(Transport::kMaxTag == uint32_t{1} << 30 && kMaxStages == 16);
  return Transport::epoch_bits(epoch) | static_cast<uint32_t>(number & 0xfffff) << 4 | static_cast<uint32_t>(stage);
}

struct Transfer::State {
  enum class Phase { kStart, kWaitForSources, kReceive, kSend };
  struct Outgoing {
    int32_t node = 0;
    TransferMessage message;
    Transport::Request request = 0;
  };
  struct Incoming {
    TransferMessage message;
    Transport::Request request = 0;
    bool arrived = false;
    std::string error;
  };

  explicit State(const NodePlan& node_plan) : plan(node_plan) {}

  const NodePlan::NodeStage& stage() const { return plan.stages[stage_index]; }
  void post_receives(Transport& transport, uint32_t tag);
  void post_sends(Transport& transport, uint32_t tag);
  bool receives_arrived(Transport& transport);
  bool sends_done(Transport& transport);
  void begin_times();
  void end_times(Transfer& transfer);
  void build_all(Transfer& transfer);
  void charge_shared(Transfer& transfer);
  const std::string& error_of(std::span<const NodePlan::RemotePart> parts) const;
  const std::string& error_of(const NodePlan::Destination& destination) const;
  NativeTensor build(const NodePlan::Destination& destination) const;
  void fold_piece(const NodePlan::LocalPiece& piece, const NativeTensor& result) const;
  const std::string& error_of_source(int64_t device) const {
    static const std::string none;
    const auto at = errors.find(device);
    return at == errors.end() ? none : at->second;
  }

  const NodePlan& plan;
  Phase phase = Phase::kStart;
  size_t stage_index = 0;
  bool receives_posted = false;
  // Of the current stage's local source devices: a value, or an error.
  std::map<int64_t, NativeTensor> values;
  std::map<int64_t, std::string> errors;
  std::map<int32_t, Incoming> incoming;  // by node
  std::vector<Outgoing> outgoing;        // of all stages
  std::optional<StageTimes> times;       // of the current stage, when somebody wants them
};

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
    Outgoing& to = outgoing.emplace_back();
    to.node = node;
    to.message = TransferMessage(stage().send_bytes.at(node));
    if (const std::string& error = error_of(parts); !error.empty())
      to.message.poison(error);
    else
      to.message.pack(parts, values, stage().stage.reduce);
    if (times) times->note_sent(node, stage().send_bytes.at(node));
    to.request = transport.send(node, tag, to.message.bytes(), to.message.owner());
  }
}

bool Transfer::State::receives_arrived(Transport& transport) {
  bool all = true;
  for (auto& [node, from] : incoming) {
    if (from.arrived) continue;
    from.arrived = transport.test(from.request);
    all &= from.arrived;
    if (!from.arrived) continue;
    from.error = from.message.poison_text().value_or("");
    if (times) times->note_received(node, stage().receive_bytes.at(node));
  }
  return all;
}

bool Transfer::State::sends_done(Transport& transport) {
  std::erase_if(outgoing, [&](const Outgoing& to) { return transport.test(to.request); });
  return outgoing.empty();
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

void Transfer::State::build_all(Transfer& transfer) {
  std::map<int64_t, NativeTensor> new_values;
  std::map<int64_t, std::string> new_errors;
  for (const NodePlan::Destination& destination : stage().destinations) {
    std::string error = error_of(destination);
    if (error.empty()) {
      // Memory that is short is this device's failure, not the comm thread's.
      try {
        new_values[destination.device] = build(destination);
      } catch (const RuntimeFault& fault) {
        error = fault.what();
      } catch (const std::bad_alloc&) {
        error = "out of memory in a redistribution";
      }
      if (!error.empty()) transfer.failed(destination.device, error);
    }
    if (!error.empty()) new_errors[destination.device] = std::move(error);
  }
  values = std::move(new_values);
  errors = std::move(new_errors);
  incoming.clear();
  receives_posted = false;
}

// Values share a storage by being copies of one handle.
void Transfer::State::charge_shared(Transfer& transfer) {
  for (auto first = values.begin(); first != values.end(); ++first) {
    std::vector<NativeTensor*> others;
    for (auto next = std::next(first); next != values.end(); ++next) {
      if (first->second && next->second.impl() == first->second.impl()) others.push_back(&next->second);
    }
    if (others.empty()) continue;
    for (NativeTensor* other : others) other->reset();
    if (first->second.is_sole_owner()) transfer.charge(first->first, first->second);
    for (NativeTensor* other : others) *other = first->second;
  }
}

NativeTensor Transfer::State::build(const NodePlan::Destination& destination) const {
  const Stage& what = stage().stage;
  const std::span pieces = std::span(stage().pieces).subspan(destination.first_piece, destination.num_pieces);
  // Values never change (D1), so a part that stays as it is isn't copied. Strides are as after a message, so that it
  // doesn't matter which node holds a device.
  if (pieces.size() == 1 && pieces[0].parts.size() == 1 && pieces[0].parts[0].node == NodePlan::kHere &&
      what.divisor == 1 && is_whole(pieces[0].local_box, destination.local_shape)) {
    const NativeTensor& source = values.at(pieces[0].sources[0]);
    if (is_whole(pieces[0].parts[0].source_box, source.local_shape())) return source.contiguous();
  }
  NativeTensor result = NativeTensor::empty(destination.local_shape, what.to->dtype);
  for (const NodePlan::LocalPiece& piece : pieces) {
    if (piece.parts.size() != 1 || what.divisor != 1) {
      fold_piece(piece, result);
    } else if (piece.parts[0].node == NodePlan::kHere) {
      copy_box(values.at(piece.sources[0]), piece.parts[0].source_box, result, piece.local_box);
    } else {
      unpack_box(incoming.at(piece.parts[0].node).message.body() + piece.parts[0].offset, result, piece.local_box);
    }
  }
  return result;
}

void Transfer::State::fold_piece(const NodePlan::LocalPiece& piece, const NativeTensor& result) const {
  const Stage& what = stage().stage;
  const int64_t count = piece.box.num_elements();
  const int64_t bytes = count * size_of(what.to->dtype);
  std::vector<Memory> temporaries;
  std::byte* out = memory_of(result, piece.local_box);
  const bool direct = out != nullptr;
  if (!direct) out = temporaries.emplace_back(allocate(bytes)).get();
  std::vector<const std::byte*> parts;
  for (size_t i = 0; i < piece.parts.size(); ++i) {
    const NodePlan::PartRef& part = piece.parts[i];
    if (part.node != NodePlan::kHere) {
      parts.push_back(incoming.at(part.node).message.body() + part.offset);
      continue;
    }
    const NativeTensor& source = values.at(piece.sources[i]);
    const std::byte* memory = memory_of(source, part.source_box);
    if (memory == nullptr) {
      std::byte* packed = temporaries.emplace_back(allocate(bytes)).get();
      pack_box(source, part.source_box, packed);
      memory = packed;
    }
    parts.push_back(memory);
  }
  if (piece.folds_here_first) {
    const auto is_here = [](const NodePlan::PartRef& part) { return part.node == NodePlan::kHere; };
    const auto first = std::find_if(piece.parts.begin(), piece.parts.end(), is_here) - piece.parts.begin();
    const auto size = std::count_if(piece.parts.begin(), piece.parts.end(), is_here);
    std::byte* folded = temporaries.emplace_back(allocate(bytes)).get();
    fold_parts(std::span(parts).subspan(static_cast<size_t>(first), static_cast<size_t>(size)), count, what.to->dtype,
               what.reduce, 1, folded);
    parts[static_cast<size_t>(first)] = folded;
    parts.erase(parts.begin() + first + 1, parts.begin() + first + size);
  }
  // Without parts the value is 0, whatever this stage folds elsewhere.
  if (parts.empty())
    fill_identity(out, count, what.to->dtype, ReduceOp::kSum);
  else
    fold_parts(parts, count, what.to->dtype, what.reduce, what.divisor, out);
  if (!direct) unpack_box(out, result, piece.local_box);
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
  while (state.phase == State::Phase::kReceive) {
    if (!state.receives_arrived(transport)) {
      state.sends_done(transport);
      return false;
    }
    state.build_all(*this);
    if (state.times) state.end_times(*this);
    if (++state.stage_index < plan_->stages.size()) {
      if (wants_times()) state.begin_times();
      state.post_receives(transport, tag());
      state.post_sends(transport, tag());
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
  return state.sends_done(transport);
}

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
    case State::Phase::kSend:
      status.phase = TransferPhase::kSends;
      for (const State::Outgoing& to : state_->outgoing) status.waits_for.push_back(to.node);
      break;
  }
  return status;
}

}  // namespace dtorch
