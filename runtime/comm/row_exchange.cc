#include "runtime/comm/row_exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/comm/transfer_message.h"

namespace dtorch {
namespace {

constexpr size_t kCounts = 0, kRows = 1;  // rounds, as stages of the tag

using Pair = RowExchangePlan::Pair;
using SharedMemory = std::shared_ptr<std::byte[]>;  // a request under way holds it, too

// A device's rows, looked at by position.
struct Source {
  NativeTensor rows;
  std::vector<int64_t> counts, first;  // of each position: how many rows, and the number of the first
  std::string error;
};

Source checked(NativeTensor rows, const NativeTensor& counts, std::string error, const RowExchangePlan& plan,
               size_t positions) {
  Source source;
  source.error = std::move(error);
  if (source.error.empty() && !(rows && counts)) source.error = "a source has no value";
  if (!source.error.empty()) return source;
  if (!counts.is_contiguous()) {
    source.error = "an exchange got counts with gaps";
    return source;
  }
  const auto* numbers = reinterpret_cast<const int64_t*>(counts.data());
  source.counts.assign(numbers, numbers + counts.num_elements());
  source.first.resize(source.counts.size());
  std::exclusive_scan(source.counts.begin(), source.counts.end(), source.first.begin(), int64_t{0});
  const int64_t total = std::accumulate(source.counts.begin(), source.counts.end(), int64_t{0});
  if (source.counts.size() != positions) {
    source.error = "an exchange over " + std::to_string(positions) + " positions got counts for " +
                   std::to_string(source.counts.size());
  } else if (std::ranges::any_of(source.counts, [](int64_t count) { return count < 0; })) {
    source.error = "an exchange got a count of rows below 0";
  } else if (rows.dtype() != plan.dtype || rows.local_shape().ndim() != 2 || rows.local_shape().back() != plan.width) {
    source.error =
        "an exchange of rows [n, " + std::to_string(plan.width) + "] of " + name_of(plan.dtype) + " got " + rows.str();
  } else if (rows.local_shape()[0] != total) {
    source.error = "an exchange got rows " + rows.str() + " for counts that add up to " + std::to_string(total);
  }
  if (!source.error.empty()) return source;
  try {
    source.rows = rows.contiguous();
  } catch (const std::exception& short_of_memory) {
    source.error = short_of_memory.what();
  }
  return source;
}

std::string out_of_memory(size_t bytes) {
  return "out of memory: " + std::to_string(bytes) + " bytes of rows between two nodes";
}

void erase_completed(std::vector<Transport::Request>& requests, Transport& transport) {
  std::erase_if(requests, [&](Transport::Request request) { return transport.test(request); });
}
size_t numbers_bytes(const std::vector<Pair>& pairs) { return pairs.size() * sizeof(int64_t); }

}  // namespace

// More would be damage, and the bytes of fewer can be counted.
constexpr int64_t kMaxRows = int64_t{1} << 40;

struct RowExchange::State {
  enum class Phase { kStart, kWaitForSources, kReceive, kSend };
  struct Outgoing {
    int32_t node = 0;
    TransferMessage counts;
    SharedMemory rows;
    std::vector<Transport::Request> requests;
  };
  struct Incoming {
    TransferMessage counts;
    std::vector<Transport::Request> requests;  // under way
    enum class Awaits { kCounts, kRows, kNothing } awaits = Awaits::kCounts;
    std::string error;
    std::vector<int64_t> numbers;  // of rows, by pair
    std::vector<size_t> offsets;   // of their bytes
    SharedMemory rows;             // all; with an error: of one message, which the next one overwrites
    size_t bytes_to_drop = 0;      // that no receive has been posted for
  };

  explicit State(const RowExchangePlan& the_plan) : plan(the_plan) {}

  void post_receives(Transport& transport, uint32_t tag);
  void post_sends(RowExchange& exchange, Transport& transport, uint32_t counts_tag, uint32_t rows_tag);
  Outgoing packed(RowExchange& exchange, const std::vector<Pair>& pairs, size_t& bytes) const;
  void take_counts(Incoming& from, const std::vector<Pair>& pairs) const;
  bool receives_arrived(RowExchange& exchange, Transport& transport, uint32_t rows_tag);
  bool sends_done(Transport& transport) {
    for (Outgoing& to : outgoing) erase_completed(to.requests, transport);
    std::erase_if(outgoing, [](const Outgoing& to) { return to.requests.empty(); });
    return outgoing.empty();
  }
  Part build(const RowExchangePlan::Line& line) const;
  void end_times(RowExchange& exchange);

  const RowExchangePlan& plan;
  Phase phase = Phase::kStart;
  std::map<int64_t, Source> sources;     // by local device
  std::map<int32_t, Incoming> incoming;  // by node
  std::vector<Outgoing> outgoing;
  std::optional<std::array<StageTimes, 2>> times;  // by round, when somebody wants them
};

void RowExchange::State::post_receives(Transport& transport, uint32_t tag) {
  for (const auto& [node, pairs] : plan.receives) {
    Incoming& from = incoming[node];
    from.counts = TransferMessage(numbers_bytes(pairs));
    from.requests.push_back(transport.receive(node, tag, from.counts.bytes(), from.counts.owner()));
  }
}

// The messages to one node; bytes: of the rows. Without requests.
RowExchange::State::Outgoing RowExchange::State::packed(RowExchange& exchange, const std::vector<Pair>& pairs,
                                                        size_t& bytes) const {
  Outgoing out;
  out.counts = TransferMessage(numbers_bytes(pairs));
  bytes = 0;
  const auto failed =
      std::ranges::find_if(pairs, [&](const Pair& pair) { return !sources.at(pair.from).error.empty(); });
  if (failed != pairs.end()) {
    out.counts.poison(sources.at(failed->from).error);
    return out;
  }
  std::vector<int64_t> numbers;
  for (const Pair& pair : pairs) {
    numbers.push_back(sources.at(pair.from).counts[pair.position_of_to]);
    bytes += static_cast<size_t>(numbers.back()) * plan.row_bytes;
  }
  try {
    if (bytes > 0) out.rows = exchange.allocate(bytes);
  } catch (const std::bad_alloc&) {
    exchange.failed(pairs.front().from, out_of_memory(bytes));
    out.counts.poison(out_of_memory(bytes));
    bytes = 0;
    return out;
  }
  out.counts.pack(numbers);
  size_t end = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Source& source = sources.at(pairs[i].from);
    const size_t size = static_cast<size_t>(numbers[i]) * plan.row_bytes;
    const size_t from = static_cast<size_t>(source.first[pairs[i].position_of_to]) * plan.row_bytes;
    if (size > 0) std::memcpy(out.rows.get() + end, source.rows.data() + from, size);
    end += size;
  }
  return out;
}

void RowExchange::State::post_sends(RowExchange& exchange, Transport& transport, uint32_t counts_tag,
                                    uint32_t rows_tag) {
  for (const auto& [node, pairs] : plan.sends) {
    size_t bytes = 0;
    Outgoing& to = outgoing.emplace_back(packed(exchange, pairs, bytes));
    to.node = node;
    to.requests.push_back(transport.send(node, counts_tag, to.counts.bytes(), to.counts.owner()));
    for (size_t at = 0; at < bytes; at += kMostBytes) {
      const std::span part(to.rows.get() + at, std::min(kMostBytes, bytes - at));
      to.requests.push_back(transport.send(node, rows_tag, part, to.rows));
    }
    if (times) {
      (*times)[kCounts].note_sent(node, numbers_bytes(pairs));
      if (bytes > 0) (*times)[kRows].note_sent(node, bytes);
    }
  }
}

void RowExchange::State::take_counts(Incoming& from, const std::vector<Pair>& pairs) const {
  from.error = from.counts.poison_text().value_or("");
  if (!from.error.empty()) return;
  from.numbers.resize(pairs.size());
  std::memcpy(from.numbers.data(), from.counts.body(), numbers_bytes(pairs));
  size_t end = 0;
  for (int64_t number : from.numbers) {
    if (number < 0 || number > kMaxRows) throw RuntimeFault("a message of the data plane is damaged");
    from.offsets.push_back(end);
    end += static_cast<size_t>(number) * plan.row_bytes;
  }
  from.offsets.push_back(end);
}

bool RowExchange::State::receives_arrived(RowExchange& exchange, Transport& transport, uint32_t rows_tag) {
  bool all = true;
  for (auto& [node, from] : incoming) {
    if (from.awaits == Incoming::Awaits::kNothing) continue;
    erase_completed(from.requests, transport);
    if (from.requests.empty() && from.awaits == Incoming::Awaits::kCounts) {
      take_counts(from, plan.receives.at(node));
      if (times) (*times)[kCounts].note_received(node, numbers_bytes(plan.receives.at(node)));
      from.awaits = Incoming::Awaits::kRows;
      const size_t bytes = from.error.empty() ? from.offsets.back() : 0;
      try {
        if (bytes > 0) from.rows = exchange.allocate(bytes);
      } catch (const std::bad_alloc&) {
        // They are on their way, and their sender waits until they have been taken.
        from.error = out_of_memory(bytes);
        exchange.failed(plan.receives.at(node).front().to, from.error);
        from.rows = exchange.allocate(std::min(kMostBytes, bytes));
        from.bytes_to_drop = bytes;
      }
      for (size_t at = 0; from.error.empty() && at < bytes; at += kMostBytes) {
        const std::span into(from.rows.get() + at, std::min(kMostBytes, bytes - at));
        from.requests.push_back(transport.receive(node, rows_tag, into, from.rows));
      }
    }
    if (from.requests.empty() && from.bytes_to_drop > 0) {
      const size_t next = std::min(kMostBytes, from.bytes_to_drop);
      from.requests.push_back(transport.receive(node, rows_tag, {from.rows.get(), next}, from.rows));
      from.bytes_to_drop -= next;
    }
    if (from.requests.empty()) {
      if (times && from.error.empty() && from.offsets.back() > 0)
        (*times)[kRows].note_received(node, from.offsets.back());
      from.awaits = Incoming::Awaits::kNothing;
    } else {
      all = false;
    }
  }
  return all;
}

// What the device of `line` gets.
RowExchange::Part RowExchange::State::build(const RowExchangePlan::Line& line) const {
  const auto position = static_cast<size_t>(std::ranges::find(line.devices, line.device) - line.devices.begin());
  struct Piece {
    const std::byte* data = nullptr;
    int64_t rows = 0;
  };
  std::vector<Piece> pieces(line.devices.size());
  for (size_t i = 0; i < line.devices.size(); ++i) {
    const auto here = sources.find(line.devices[i]);
    if (here == sources.end()) continue;
    const Source& source = here->second;
    if (!source.error.empty()) return {{}, {}, source.error};
    pieces[i] = {source.rows.data() + static_cast<size_t>(source.first[position]) * plan.row_bytes,
                 source.counts[position]};
  }
  for (const auto& [node, pairs] : plan.receives) {
    const Incoming& from = incoming.at(node);
    for (size_t k = 0; k < pairs.size(); ++k) {
      if (pairs[k].to != line.device) continue;
      if (!from.error.empty()) return {{}, {}, from.error};
      pieces[pairs[k].position_of_from] = {from.rows.get() + from.offsets[k], from.numbers[k]};
    }
  }
  Part part;
  part.counts = NativeTensor::empty({1, static_cast<int64_t>(pieces.size())}, kInt64);
  int64_t total = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    reinterpret_cast<int64_t*>(part.counts.data())[i] = pieces[i].rows;
    total += pieces[i].rows;
    if (i != position) part.moved_bytes += pieces[i].rows * static_cast<int64_t>(plan.row_bytes);
  }
  part.rows = NativeTensor::empty({total, plan.width}, plan.dtype);
  std::byte* end = part.rows.data();
  for (const Piece& piece : pieces) {
    const size_t bytes = static_cast<size_t>(piece.rows) * plan.row_bytes;
    if (bytes == 0) continue;
    std::memcpy(end, piece.data, bytes);
    end += bytes;
  }
  return part;
}

void RowExchange::State::end_times(RowExchange& exchange) {
  for (StageTimes& round : *times) {
    round.end();
    if (round.has_messages()) exchange.on_round(round);
  }
  times.reset();
}

RowExchange::RowExchange(std::shared_ptr<const RowExchangePlan> plan, uint32_t epoch, uint64_t number)
    : plan_(std::move(plan)), epoch_(epoch), number_(number), state_(std::make_unique<State>(*plan_)) {}
RowExchange::~RowExchange() = default;

bool RowExchange::poll(Transport& transport) {
  State& state = *state_;
  const uint32_t counts_tag = transfer_tag(epoch_, number_, kCounts), rows_tag = transfer_tag(epoch_, number_, kRows);
  if (state.phase == State::Phase::kStart) {
    state.post_receives(transport, counts_tag);
    state.phase = State::Phase::kWaitForSources;
  }
  if (state.phase == State::Phase::kWaitForSources) {
    if (!sources_ready()) return false;
    for (const RowExchangePlan::Line& line : plan_->lines) {
      Part part = source(line.device);
      const bool had_failed = !part.error.empty();
      Source& source = state.sources[line.device] =
          checked(std::move(part.rows), part.counts, std::move(part.error), *plan_, line.devices.size());
      if (!had_failed && !source.error.empty()) failed(line.device, source.error);
    }
    if (wants_times()) state.times.emplace()[kRows].stage = kRows;
    state.post_sends(*this, transport, counts_tag, rows_tag);
    state.phase = State::Phase::kReceive;
  }
  if (state.phase == State::Phase::kReceive) {
    if (!state.receives_arrived(*this, transport, rows_tag)) {
      state.sends_done(transport);
      return false;
    }
    std::vector<Part> parts;
    for (const RowExchangePlan::Line& line : plan_->lines) {
      Part& part = parts.emplace_back();
      // Memory that is short is this device's failure, not the comm thread's.
      try {
        part = state.build(line);
      } catch (const RuntimeFault& fault) {
        part = {{}, {}, fault.what()};
        failed(line.device, part.error);
      } catch (const std::bad_alloc&) {
        part = {{}, {}, "out of memory in an exchange of rows"};
        failed(line.device, part.error);
      }
    }
    // As a transfer: whoever has a result finds its messages in the timeline.
    if (state.times) state.end_times(*this);
    for (size_t i = 0; i < parts.size(); ++i) deliver(plan_->lines[i].device, std::move(parts[i]));
    state.sources.clear();
    state.incoming.clear();
    state.phase = State::Phase::kSend;
  }
  return state.sends_done(transport);
}

bool RowExchange::sleeps() const { return state_->phase == State::Phase::kWaitForSources; }

std::optional<TransferStatus> RowExchange::status() const {
  TransferStatus status{.number = number_};
  if (state_->phase == State::Phase::kReceive) {
    status.phase = TransferPhase::kReceives;
    for (const auto& [node, from] : state_->incoming) {
      if (from.awaits != State::Incoming::Awaits::kNothing) status.waits_for.push_back(node);
    }
  } else if (state_->phase == State::Phase::kSend) {
    status.phase = TransferPhase::kSends;
    for (const State::Outgoing& to : state_->outgoing) status.waits_for.push_back(to.node);
  }
  return status;
}

}  // namespace dtorch
