#include "runtime/comm/transfer_message.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"

namespace dtorch {
namespace {

constexpr uint32_t kMagic = 0x54445431;

}  // namespace

std::shared_ptr<std::byte[]> message_memory(size_t bytes) {
  try {
    return std::make_shared_for_overwrite<std::byte[]>(bytes);
  } catch (const std::bad_alloc&) {
    throw RuntimeFault("out of memory: " + std::to_string(bytes) + " bytes for a message between nodes");
  }
}

void pack_part(const NodePlan::RemotePart& part, const std::map<int64_t, NativeTensor>& sources, ReduceOp reduce,
               std::byte* memory) {
  pack_box(sources.at(part.source), part.source_box, memory);
  std::vector<std::byte> packed;
  for (const auto& [device, box] : part.folded) {
    const NativeTensor& source = sources.at(device);
    packed.resize(static_cast<size_t>(box.num_elements() * size_of(source.dtype())));
    pack_box(source, box, packed.data());
    const std::byte* const both[] = {memory, packed.data()};
    fold_parts(both, box.num_elements(), source.dtype(), reduce, 1, memory);
  }
}

struct TransferMessage::Header {
  uint32_t magic = kMagic;
  uint32_t poisoned = 0;
  uint64_t text_bytes = 0;
  uint64_t zero[6] = {};
};

TransferMessage::TransferMessage(size_t body_bytes) : size_(kHeaderBytes + std::max(body_bytes, kMinBody)) {
  static_assert(sizeof(Header) == kHeaderBytes && kHeaderBytes % kPartAlignment == 0);
  memory_ = message_memory(size_);
}

void TransferMessage::pack(std::span<const NodePlan::RemotePart> parts, const std::map<int64_t, NativeTensor>& sources,
                           ReduceOp reduce) {
  const Header header;
  std::memcpy(memory_.get(), &header, sizeof(header));
  std::byte* body = memory_.get() + kHeaderBytes;
  // Nothing that was in this memory before leaves the process.
  size_t end = 0;
  for (const NodePlan::RemotePart& part : parts) {
    const NativeTensor& source = sources.at(part.source);
    std::memset(body + end, 0, part.offset - end);
    pack_part(part, sources, reduce, body + part.offset);
    end = part.offset + static_cast<size_t>(part.source_box.num_elements() * size_of(source.dtype()));
  }
  std::memset(body + end, 0, size_ - kHeaderBytes - end);
}

void TransferMessage::pack(std::span<const int64_t> numbers) {
  const Header header;
  std::memset(memory_.get(), 0, size_);
  std::memcpy(memory_.get(), &header, sizeof(header));
  std::memcpy(memory_.get() + kHeaderBytes, numbers.data(), numbers.size_bytes());
}

void TransferMessage::poison(const std::string& text) {
  Header header;
  header.poisoned = 1;
  header.text_bytes = std::min(text.size(), size_ - kHeaderBytes);
  std::memset(memory_.get(), 0, size_);
  std::memcpy(memory_.get(), &header, sizeof(header));
  std::memcpy(memory_.get() + kHeaderBytes, text.data(), header.text_bytes);
}

std::optional<std::string> TransferMessage::poison_text() const {
  Header header;
  std::memcpy(&header, memory_.get(), sizeof(header));
  if (header.magic != kMagic || header.poisoned > 1 || header.text_bytes > size_ - kHeaderBytes) {
    throw RuntimeFault("a message of the data plane is damaged");
  }
  if (header.poisoned == 0) return std::nullopt;
  std::string text(reinterpret_cast<const char*>(body()), header.text_bytes);
  return text.empty() ? "a source has failed" : text;
}

}  // namespace dtorch
