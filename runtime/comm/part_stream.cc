#include "runtime/comm/part_stream.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/comm/transfer_message.h"

namespace dtorch {
namespace {

// Chunks under way to one node: enough that a receiver which the scheduler has put aside for some time finds more.
constexpr size_t kSendWindow = 32;
// Receives posted at a time. Where MPI copies in the receiver's thread one would do; elsewhere they hide the way.
constexpr size_t kReceiveWindow = 4;

}  // namespace

ChunkWalk::ChunkWalk(std::span<const NodePlan::RemotePart> parts, std::vector<size_t> bytes, size_t chunk_bytes)
    : parts_(parts), bytes_(std::move(bytes)), chunk_bytes_(chunk_bytes) {
  group_end_ = end_of_group(0);
}

size_t ChunkWalk::end_of_group(size_t begin) const {
  size_t end = begin;
  while (end < parts_.size() && parts_[end].group == parts_[begin].group) ++end;
  return end;
}

size_t ChunkWalk::largest_group() const {
  size_t largest = 0;
  for (size_t begin = 0; begin < parts_.size();) {
    const size_t end = end_of_group(begin);
    largest = std::max(largest, end - begin);
    begin = end;
  }
  return largest;
}

ChunkWalk::Chunk ChunkWalk::next() {
  const size_t bytes = bytes_[part_];  // of all of the group
  const Chunk chunk{part_, begin_, std::min(chunk_bytes_, bytes - begin_)};
  if (++part_ < group_end_) return chunk;
  part_ = group_begin_;
  begin_ += chunk.size;
  if (begin_ < bytes) return chunk;
  begin_ = 0;
  part_ = group_begin_ = group_end_;
  group_end_ = end_of_group(group_begin_);
  return chunk;
}

PartSender::PartSender(int32_t node, uint32_t tag, ChunkWalk walk, std::vector<Part> parts)
    : node_(node), tag_(tag), walk_(std::move(walk)), parts_(std::move(parts)) {}

bool PartSender::advance(Transport& transport) {
  while (!under_way_.empty() && transport.test(under_way_.front())) under_way_.pop_front();
  while (!walk_.at_end() && under_way_.size() < kSendWindow) {
    const ChunkWalk::Chunk chunk = walk_.next();
    const Part& part = parts_[chunk.part];
    under_way_.push_back(transport.send(node_, tag_, {part.data + chunk.begin, chunk.size}, part.owner));
  }
  return under_way_.empty() && walk_.at_end();
}

PartReceiver::PartReceiver(int32_t node, uint32_t tag, ChunkWalk walk, std::vector<Sink> sinks, size_t chunk_bytes)
    : node_(node),
      tag_(tag),
      walk_(std::move(walk)),
      sinks_(std::move(sinks)),
      chunk_bytes_(chunk_bytes),
      window_(std::max(kReceiveWindow, 2 * walk_.largest_group())) {}

bool PartReceiver::advance(Transport& transport) {
  bool happened = false;
  const auto next = std::ranges::find_if(posted_, [](const Posted& posted) { return !posted.arrived; });
  for (auto at = next; at != posted_.end() && transport.test(at->request); ++at) at->arrived = happened = true;
  while (!posted_.empty() && posted_.front().arrived && !sinks_[posted_.front().chunk.part].is_taken) pop();
  while (!walk_.at_end() && posted_.size() < window_) {
    post(transport);
    happened = true;
  }
  return happened;
}

void PartReceiver::post(Transport& transport) {
  Posted& posted = posted_.emplace_back();
  posted.chunk = walk_.next();
  const Sink& sink = sinks_[posted.chunk.part];
  if (sink.memory != nullptr) {
    const std::span<std::byte> place(sink.memory + posted.chunk.begin, posted.chunk.size);
    posted.request = transport.receive(node_, tag_, place, sink.owner);
    return;
  }
  if (free_buffers_.empty()) free_buffers_.push_back(message_memory(chunk_bytes_));
  posted.buffer = std::move(free_buffers_.back());
  free_buffers_.pop_back();
  posted.request = transport.receive(node_, tag_, {posted.buffer.get(), posted.chunk.size}, posted.buffer);
}

void PartReceiver::pop() {
  if (posted_.front().buffer) free_buffers_.push_back(std::move(posted_.front().buffer));
  posted_.pop_front();
}

const std::byte* PartReceiver::chunk(size_t part, size_t begin) const {
  for (const Posted& posted : posted_) {
    if (!posted.arrived || posted.chunk.begin != begin) return nullptr;
    if (posted.chunk.part == part) return posted.buffer.get();
  }
  return nullptr;
}

void PartReceiver::take(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    DTORCH_CHECK(!posted_.empty() && posted_.front().arrived, "a chunk is taken that isn't there");
    pop();
  }
}

}  // namespace dtorch
