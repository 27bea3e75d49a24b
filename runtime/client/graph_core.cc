#include "runtime/client/graph_core.h"

#include <utility>

#include "runtime/client/capture.h"
#include "runtime/client/record_codec.h"

namespace dtorch {
namespace {

// More releases than this get records of their own.
constexpr size_t kMaxRidingReleases = 64;

GraphId next_graph_id() {
  static std::atomic<GraphId> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

uint64_t next_host_data_number() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void counted_add_ref(GraphCore* object) { object->add_ref(); }
void counted_release(GraphCore* object) {
  if (object->drop_ref()) delete object;
}

GraphCore::GraphCore(std::shared_ptr<ClientShared> client, size_t ring_cells)
    : client_(std::move(client)),
      link_(std::make_shared<GraphLink>(next_graph_id(), ring_cells)),
      cache_(client_->runtime->binding().num_devices()) {
  client_->runtime->attach(link_);
}

bool GraphCore::belongs_to_this_thread() {
  const ThreadState* expected = nullptr;
  return on_user_thread() || user_thread_.compare_exchange_strong(expected, &thread_state);
}

void GraphCore::check_usable_slowly() {
  if (!belongs_to_this_thread()) {
    throw GraphError("graph " + std::to_string(id()) +
                     " is driven by another thread; a Graph belongs to the first thread that uses it "
                     "(client.new_graph() makes one more)");
  }
  if (closed_.load(std::memory_order_relaxed) || link_->failed.load(std::memory_order_acquire)) throw_ended();
}

void GraphCore::throw_ended() {
  {
    std::lock_guard lock(link_->failure_mutex);
    if (link_->failure) {
      fatal_seen_ = true;
      std::rethrow_exception(link_->failure);
    }
  }
  throw GraphError("graph " + std::to_string(id()) + " has ended");
}

// Inlined into append(), so that the content of a record need not be put together in memory first.
[[gnu::always_inline]] inline void GraphCore::write(const RecordContent& content) {
  const size_t num_operands = content.inputs.size() + content.outputs.size() + content.releases.size();
  DTORCH_CHECK(content.inputs.size() <= 0xFFFF && content.outputs.size() <= 0xFFFF &&
                   record_cells(num_operands, content.scalars.size()) <= link_->ring.capacity(),
               std::to_string(num_operands) + " operands don't fit in one record");
  if (content.payload) content.payload->add_ref();  // the ring's
  if (!write_record(link_->ring, content)) {
    if (content.payload) content.payload->drop_ref();  // the caller holds another
    throw_ended();
  }
  // Slots may be taken again: their release is in the stream.
  for (OperandId slot : pending_releases_.all()) free_slots_.push(slot);
  pending_releases_.clear();
}

void GraphCore::append(const OperatorSpec* spec, std::span<const OperandId> inputs, std::span<const OperandId> outputs,
                       std::span<const Scalar> scalars, IntrusivePtr<RecordPayload> payload, const SourceLine& where) {
  if (side_waiting_.load(std::memory_order_acquire)) drain_side_queue();
  if (pending_releases_.size() > kMaxRidingReleases) write_releases();
  DTORCH_CHECK(scalars.size() <= 0xFF, "too many scalars");
  const RecordContent record{.spec = spec,
                             .payload = payload.get(),
                             .where = where,
                             .inputs = inputs,
                             .outputs = outputs,
                             .releases = pending_releases_.all(),
                             .scalars = scalars};
  if (thread_state.observer != nullptr && thread_state.observed == this) {
    try {
      thread_state.observer->before_record(record);
    } catch (...) {
      for (OperandId slot : outputs) free_slots_.push(slot);  // nobody has seen them
      throw;
    }
  }
  write(record);
}

void GraphCore::write_releases() {
  const SlotList all = std::exchange(pending_releases_, {});
  for (size_t at = 0; at < all.size();) {
    const size_t count = std::min(kReleasesInRecord, all.size() - at);
    for (OperandId slot : all.all().subspan(at, count)) pending_releases_.push(slot);
    write({.releases = pending_releases_.all()});
    at += count;
  }
}

void GraphCore::drain_side_queue() {
  std::lock_guard lock(side_mutex_);
  for (OperandId slot : side_releases_) pending_releases_.push(slot);
  side_releases_.clear();
  side_waiting_.store(false, std::memory_order_relaxed);
}

OperandId GraphCore::new_slot() {
  DTORCH_CHECK(next_slot_ < kMaxOperand, "operand numbers are used up");
  return next_slot_++;
}

void GraphCore::release_slowly(OperandId slot) noexcept {
  if (closed_.load(std::memory_order_relaxed)) return;
  if (!on_user_thread()) {
    std::lock_guard lock(side_mutex_);
    side_releases_.push_back(slot);
    side_waiting_.store(true, std::memory_order_release);
    return;
  }
  pending_releases_.push(slot);
  if (pending_releases_.size() < kReleasesInRecord || link_->failed.load(std::memory_order_relaxed)) return;
  try {
    write_releases();
  } catch (const std::exception&) {
    // The Graph has ended; the next call tells why.
    pending_releases_.clear();
  }
}

void GraphCore::flush(IntrusivePtr<ReadState> barrier) {
  check_usable();
  if (side_waiting_.load(std::memory_order_acquire)) drain_side_queue();
  if (pending_releases_.size() > kReleasesInRecord) write_releases();
  IntrusivePtr<RecordPayload> payload;
  if (barrier) {
    payload = make_intrusive<RecordPayload>();
    payload->read = std::move(barrier);
  }
  write({.kind = RecordKind::kFlush, .payload = payload.get(), .releases = pending_releases_.all()});
}

void GraphCore::close() noexcept {
  if (closed_.exchange(true)) return;
  try {
    drain_side_queue();
    if (!write_record(link_->ring, {.kind = RecordKind::kClose})) pending_releases_.clear();
    client_->runtime->detach(*link_);
  } catch (...) {
    std::lock_guard lock(link_->failure_mutex);
    if (!link_->failure) link_->failure = std::current_exception();
  }
}

std::exception_ptr GraphCore::take_failure() {
  std::lock_guard lock(link_->failure_mutex);
  if (link_->unread_failure) return std::exchange(link_->unread_failure, nullptr);
  if (fatal_seen_) return nullptr;
  fatal_seen_ = true;
  return link_->failure;
}

}  // namespace dtorch
