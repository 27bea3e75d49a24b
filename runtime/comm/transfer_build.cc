// What the stages of a transfer make of their messages and large parts.
#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/box_memory.h"
#include "runtime/comm/helper_threads.h"
#include "runtime/comm/transfer_state.h"

namespace dtorch {
namespace {

// Chunks that are taken before the comm thread looks at its other work.
constexpr int kMaxRounds = 16;
// What one of several threads takes at a time.
constexpr int64_t kGrainBytes = 256 << 10;

bool is_whole(const Box& box, const Shape& shape) {
  return box.size == shape &&
         std::all_of(box.offset.begin(), box.offset.end(), [](int64_t offset) { return offset == 0; });
}

bool is_here(const NodePlan::PartRef& part) { return part.node == NodePlan::kHere; }

// Parts of this node, which stand together, become one in `memory`.
void fold_here_first(const NodePlan::LocalPiece& piece, const Stage& stage, std::vector<const std::byte*>& parts,
                     int64_t count, std::byte* memory) {
  const auto first = std::ranges::find_if(piece.parts, is_here) - piece.parts.begin();
  const auto size = std::ranges::count_if(piece.parts, is_here);
  fold_parts(std::span(parts).subspan(static_cast<size_t>(first), static_cast<size_t>(size)), count, stage.to->dtype,
             stage.reduce, 1, memory);
  parts[static_cast<size_t>(first)] = memory;
  parts.erase(parts.begin() + first + 1, parts.begin() + first + size);
}

// On this thread and the helpers.
void share(HelperThreads* helpers, int64_t count, int64_t grain, const HelperThreads::Work& work) {
  if (helpers == nullptr)
    work(0, count);
  else
    helpers->run(count, grain, work);
}

// Of memory that is short: the text, else empty. It is a device's failure, not the comm thread's.
template <class F>
std::string failure_of(F&& work) {
  try {
    work();
  } catch (const RuntimeFault& fault) {
    return fault.what();
  } catch (const std::bad_alloc&) {
    return "out of memory in a redistribution";
  }
  return {};
}

}  // namespace

void Transfer::State::begin_results(Transfer& transfer) {
  const std::vector<NodePlan::Destination>& destinations = stage().destinations;
  results.assign(destinations.size(), {});
  for (size_t i = 0; i < destinations.size(); ++i) {
    if (destinations[i].same_as != i) continue;
    Result& result = results[i];
    result.error = error_of(destinations[i]);
    if (!result.error.empty()) continue;
    result.error = failure_of([&] {
      result.is_source = passes_source(destinations[i]);
      result.value = result.is_source ? values.at(pieces_of(destinations[i])[0].sources[0]).contiguous()
                                      : make_result(transfer, i);
    });
    if (!result.error.empty()) transfer.failed(destinations[i].device, result.error);
  }
  if (stage().places_in_next.empty()) next_result.reset();
}

// Values never change (D1), so a part that stays as it is isn't copied. Strides are as after a message, so that it
// doesn't matter which node holds a device.
bool Transfer::State::passes_source(const NodePlan::Destination& destination) const {
  const Pieces pieces = pieces_of(destination);
  if (pieces.size() != 1 || pieces[0].parts.size() != 1 || !is_here(pieces[0].parts[0]) || stage().stage.divisor != 1 ||
      !is_whole(pieces[0].local_box, destination.local_shape))
    return false;
  return is_whole(pieces[0].parts[0].source_box, values.at(pieces[0].sources[0]).local_shape());
}

NativeTensor Transfer::State::make_result(Transfer& transfer, size_t destination) {
  const NodePlan::Destination& made = stage().destinations[destination];
  const auto new_result = [&](const NodePlan::NodeStage& of, const NodePlan::Destination& whole) {
    NativeTensor result = NativeTensor::empty(whole.local_shape, of.stage.to->dtype);
    if (&of == &plan.stages.back()) transfer.charge(whole.device, result);
    return result;
  };
  if (stage().places_in_next.empty()) return next_result ? next_result : new_result(stage(), made);
  const NodePlan::NodeStage& next = plan.stages[stage_index + 1];
  if (!next_result) next_result = new_result(next, next.destinations[0]);
  return next_result.narrowed(stage().places_in_next[destination]);
}

void Transfer::State::receive_parts(uint32_t tag) {
  std::map<int32_t, std::vector<PartReceiver::Sink>> sinks;
  std::map<std::pair<int32_t, int32_t>, size_t> num_users;
  const auto for_each_piece = [&](const auto& look) {
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].value || results[i].is_source) continue;
      for (const NodePlan::LocalPiece& piece : pieces_of(stage().destinations[i])) look(piece, results[i].value);
    }
  };
  for_each_piece([&](const NodePlan::LocalPiece& piece, const NativeTensor&) {
    for (const NodePlan::PartRef& part : piece.parts) {
      if (part.direct != NodePlan::kInBody) ++num_users[{part.node, part.direct}];
    }
  });
  for (const auto& [node, parts] : stage().direct_receives) {
    if (incoming.at(node).error.empty()) sinks[node].resize(parts.size());
  }
  for_each_piece([&](const NodePlan::LocalPiece& piece, const NativeTensor& result) {
    const bool in_chunks = begin_chunk_fold(piece, result);
    const bool is_copy = piece.parts.size() == 1 && stage().stage.divisor == 1;
    std::byte* const place = is_copy ? memory_of(result, piece.local_box) : nullptr;
    for (const NodePlan::PartRef& part : piece.parts) {
      if (part.direct == NodePlan::kInBody) continue;
      PartReceiver::Sink& sink = sinks.at(part.node)[static_cast<size_t>(part.direct)];
      sink.is_taken = in_chunks;
      if (in_chunks || sink.memory != nullptr) continue;
      if (place != nullptr && num_users.at({part.node, part.direct}) == 1) {
        sink.memory = place;
        sink.owner = std::make_shared<NativeTensor>(result);
        continue;
      }
      const auto bytes = static_cast<size_t>(piece.box.num_elements() * size_of(stage().stage.to->dtype));
      std::shared_ptr<std::byte[]>& whole = whole_parts[{part.node, part.direct}] = message_memory(bytes);
      sink.memory = whole.get();
      sink.owner = whole;
    }
  });
  for (auto& [node, list] : sinks) {
    const std::vector<NodePlan::RemotePart>& parts = stage().direct_receives.at(node);
    receivers.try_emplace(node, node, tag, walk_of(parts), std::move(list), plan.chunk_bytes);
  }
}

bool Transfer::State::begin_chunk_fold(const NodePlan::LocalPiece& piece, const NativeTensor& result) {
  if (!piece.folds_chunks) return false;
  ChunkFold fold{&piece, memory_of(result, piece.local_box), {}, 0};
  if (fold.result == nullptr) return false;
  for (size_t i = 0; i < piece.parts.size(); ++i) {
    const NodePlan::PartRef& part = piece.parts[i];
    fold.parts.push_back(is_here(part) ? memory_of(values.at(piece.sources[i]), part.source_box) : nullptr);
    if (is_here(part) && fold.parts.back() == nullptr) return false;
  }
  fold.bytes = static_cast<size_t>(piece.box.num_elements() * size_of(stage().stage.to->dtype));
  chunk_folds.push_back(std::move(fold));
  return true;
}

bool Transfer::State::fold_chunk() {
  if (fold_at == chunk_folds.size()) return false;
  const ChunkFold& fold = chunk_folds[fold_at];
  const std::vector<NodePlan::PartRef>& refs = fold.piece->parts;
  std::vector<const std::byte*> parts;
  for (size_t i = 0; i < refs.size(); ++i) {
    if (fold.parts[i] != nullptr) {
      parts.push_back(fold.parts[i] + folded_bytes);
      continue;
    }
    parts.push_back(receivers.at(refs[i].node).chunk(static_cast<size_t>(refs[i].direct), folded_bytes));
    if (parts.back() == nullptr) return false;
  }
  const Stage& what = stage().stage;
  const size_t bytes = std::min(plan.chunk_bytes, fold.bytes - folded_bytes);
  const int64_t count = static_cast<int64_t>(bytes) / size_of(what.to->dtype);
  std::shared_ptr<std::byte[]> folded_here;
  if (fold.piece->folds_here_first) {
    folded_here = message_memory(bytes);
    fold_here_first(*fold.piece, what, parts, count, folded_here.get());
  }
  fold_parts(parts, count, what.to->dtype, what.reduce, what.divisor, fold.result + folded_bytes);
  for (const NodePlan::PartRef& ref : refs) {
    if (!is_here(ref)) receivers.at(ref.node).take(1);
  }
  folded_bytes += bytes;
  if (folded_bytes == fold.bytes) {
    ++fold_at;
    folded_bytes = 0;
  }
  return true;
}

bool Transfer::State::advance_parts(Transport& transport) {
  bool happened = true;
  for (int round = 0; happened && round < kMaxRounds; ++round) {
    happened = false;
    for (auto& [node, receiver] : receivers) happened |= receiver.advance(transport);
    while (fold_chunk()) happened = true;
  }
  return std::ranges::all_of(receivers, [](const auto& receiver) { return receiver.second.done(); });
}

void Transfer::State::end_results(Transfer& transfer) {
  const std::vector<NodePlan::Destination>& destinations = stage().destinations;
  for (size_t i = 0; i < results.size(); ++i) {
    Result& result = results[i];
    if (!result.value || result.is_source) continue;
    result.error = failure_of([&] { build(transfer.helpers(), pieces_of(destinations[i]), result.value); });
    if (result.error.empty()) continue;
    result.value.reset();
    transfer.failed(destinations[i].device, result.error);
  }
  std::map<int64_t, NativeTensor> new_values;
  errors.clear();
  for (const NodePlan::Destination& destination : destinations) {
    const Result& result = results[destination.same_as];
    if (result.value)
      new_values[destination.device] = result.value;
    else
      errors[destination.device] = result.error;
  }
  values = std::move(new_values);
  results.clear();
  receivers.clear();
  whole_parts.clear();
  chunk_folds.clear();
  fold_at = 0;
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

void Transfer::State::build(HelperThreads* helpers, Pieces pieces, const NativeTensor& result) const {
  for (const NodePlan::LocalPiece& piece : pieces) {
    if (std::ranges::find(chunk_folds, &piece, &ChunkFold::piece) != chunk_folds.end()) continue;
    if (piece.parts.size() != 1 || stage().stage.divisor != 1)
      fold_piece(helpers, piece, result);
    else
      copy_piece(helpers, piece, result);
  }
}

// Null: a large part that is in its place in the result.
const std::byte* Transfer::State::received(const NodePlan::PartRef& part) const {
  if (part.direct == NodePlan::kInBody) return incoming.at(part.node).message.body() + part.offset;
  const auto at = whole_parts.find({part.node, part.direct});
  return at == whole_parts.end() ? nullptr : at->second.get();
}

void Transfer::State::copy_piece(HelperThreads* helpers, const NodePlan::LocalPiece& piece,
                                 const NativeTensor& result) const {
  const NodePlan::PartRef& part = piece.parts[0];
  if (!is_here(part)) {
    if (const std::byte* packed = received(part)) unpack_box(packed, result, piece.local_box);
    return;
  }
  const NativeTensor& source = values.at(piece.sources[0]);
  const std::byte* from = memory_of(source, part.source_box);
  std::byte* to = memory_of(result, piece.local_box);
  if (from == nullptr || to == nullptr) return copy_box(source, part.source_box, result, piece.local_box);
  if (from == to) return;  // a stage before has put it there
  share(helpers, piece.box.num_elements() * size_of(result.dtype()), kGrainBytes,
        [&](int64_t begin, int64_t end) { std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin)); });
}

void Transfer::State::fold_piece(HelperThreads* helpers, const NodePlan::LocalPiece& piece,
                                 const NativeTensor& result) const {
  const Stage& what = stage().stage;
  const int64_t count = piece.box.num_elements();
  const int64_t element_bytes = size_of(what.to->dtype);
  std::vector<Memory> temporaries;
  const auto allocate = [&] {
    temporaries.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count * element_bytes)));
    return temporaries.back().get();
  };
  std::byte* out = memory_of(result, piece.local_box);
  const bool direct = out != nullptr;
  if (!direct) out = allocate();
  std::vector<const std::byte*> parts;
  for (size_t i = 0; i < piece.parts.size(); ++i) {
    const NodePlan::PartRef& part = piece.parts[i];
    if (!is_here(part)) {
      parts.push_back(received(part));
      continue;
    }
    const NativeTensor& source = values.at(piece.sources[i]);
    const std::byte* memory = memory_of(source, part.source_box);
    if (memory == nullptr) {
      std::byte* packed = allocate();
      pack_box(source, part.source_box, packed);
      memory = packed;
    }
    parts.push_back(memory);
  }
  if (piece.folds_here_first) fold_here_first(piece, what, parts, count, allocate());
  // Without parts the value is 0, whatever this stage folds elsewhere.
  if (parts.empty())
    fill_identity(out, count, what.to->dtype, ReduceOp::kSum);
  else
    share(helpers, count, kGrainBytes / element_bytes, [&](int64_t begin, int64_t end) {
      fold_range(parts, begin, end, what.to->dtype, what.reduce, what.divisor, out);
    });
  if (!direct) unpack_box(out, result, piece.local_box);
}

}  // namespace dtorch
