// Large parts between two nodes in one stage of a transfer: straight from and to memory where that is one run, in
// chunks of NodePlan::chunk_bytes with the tag of the stage's message, behind it. The same order at both ends: groups
// one after the other; within a group the parts take turns, chunk by chunk. Comm thread only. Inside runtime/comm only.
#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/comm/transfer.h"

namespace dtorch {

// Goes through the chunks of a list of parts.
class ChunkWalk {
 public:
  struct Chunk {
    size_t part = 0;  // index in the list
    size_t begin = 0, size = 0;
  };
  // bytes: of each part. The parts outlive the walk.
  ChunkWalk(std::span<const NodePlan::RemotePart> parts, std::vector<size_t> bytes, size_t chunk_bytes);
  bool at_end() const { return group_begin_ == parts_.size(); }
  Chunk next();  // not at the end
  size_t largest_group() const;

 private:
  size_t end_of_group(size_t begin) const;

  std::span<const NodePlan::RemotePart> parts_;
  std::vector<size_t> bytes_;
  size_t chunk_bytes_;
  size_t group_begin_ = 0, group_end_ = 0;  // of the group under way
  size_t part_ = 0, begin_ = 0;
};

class PartSender {
 public:
  struct Part {
    const std::byte* data = nullptr;
    Transport::Owner owner;  // of the memory
  };
  // parts: in the order of the walk's list.
  PartSender(int32_t node, uint32_t tag, ChunkWalk walk, std::vector<Part> parts);
  // Sends what may be under way at a time. True when all has been taken.
  bool advance(Transport& transport);
  int32_t node() const { return node_; }

 private:
  int32_t node_;
  uint32_t tag_;
  ChunkWalk walk_;
  std::vector<Part> parts_;
  std::deque<Transport::Request> under_way_;
};

class PartReceiver {
 public:
  // Where a part goes. Without memory its chunks come into buffers: they are dropped or, when somebody takes them, stay
  // there until take().
  struct Sink {
    std::byte* memory = nullptr;
    Transport::Owner owner;  // of the memory
    bool is_taken = false;
  };
  PartReceiver(int32_t node, uint32_t tag, ChunkWalk walk, std::vector<Sink> sinks, size_t chunk_bytes);
  // True when something has happened.
  bool advance(Transport& transport);
  bool done() const { return walk_.at_end() && posted_.empty(); }
  // The bytes of a chunk when it is there and comes before all that isn't of its group; else null.
  const std::byte* chunk(size_t part, size_t begin) const;
  // Drops the first `count` chunks, which must be there.
  void take(size_t count);

 private:
  struct Posted {
    ChunkWalk::Chunk chunk;
    Transport::Request request = 0;
    std::shared_ptr<std::byte[]> buffer;  // null: in the sink's memory
    bool arrived = false;
  };
  void pop();
  void post(Transport& transport);

  int32_t node_;
  uint32_t tag_;
  ChunkWalk walk_;
  std::vector<Sink> sinks_;
  size_t chunk_bytes_;
  size_t window_;
  std::deque<Posted> posted_;
  std::vector<std::shared_ptr<std::byte[]>> free_buffers_;
};

}  // namespace dtorch
