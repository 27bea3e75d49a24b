// The message between two nodes in one stage of a transfer; format at the top of transfer.h. Inside runtime/comm only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/comm/transfer.h"

namespace dtorch {

inline constexpr size_t kMaxStages = 16;
inline constexpr size_t kPartAlignment = 16;
inline constexpr size_t kMinBody = 192;  // so that an error text fits into any message

constexpr size_t align_part(size_t offset) { return (offset + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }

// Uninitialised. Throws RuntimeFault when memory is short: both ends count on the message, so that this is the end of
// the job.
std::shared_ptr<std::byte[]> message_memory(size_t bytes);

// A part with what is folded behind it, packed into memory. reduce: how parts of several sources are folded.
void pack_part(const NodePlan::RemotePart& part, const std::map<int64_t, NativeTensor>& sources, ReduceOp reduce,
               std::byte* memory);

class TransferMessage {
 public:
  TransferMessage() = default;
  // Uninitialised. `body_bytes` as in NodePlan.
  explicit TransferMessage(size_t body_bytes);

  std::span<std::byte> bytes() { return {memory_.get(), size_}; }
  // What a request of the transport keeps alive.
  std::shared_ptr<const void> owner() const { return memory_; }
  const std::byte* body() const { return memory_.get() + kHeaderBytes; }

  // reduce: as for pack_part().
  void pack(std::span<const NodePlan::RemotePart> parts, const std::map<int64_t, NativeTensor>& sources,
            ReduceOp reduce);
  void pack(std::span<const int64_t> numbers);
  // Cuts the text where the message ends.
  void poison(const std::string& text);
  // Of a message that has arrived: the text of the poison (never empty), or nothing. Throws RuntimeFault when it isn't
  // one of ours.
  std::optional<std::string> poison_text() const;

 private:
  static constexpr size_t kHeaderBytes = 64;
  struct Header;
  std::shared_ptr<std::byte[]> memory_;
  size_t size_ = 0;
};

}  // namespace dtorch
