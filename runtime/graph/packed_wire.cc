// A message as one string of bytes. Pure functions, any thread.
//
//   packed := kind:u8 has_payload:u8 zero:u8[2] epoch:u32 head_bytes:u64 head payload      (little-endian)
#include <cstring>

#include "runtime/graph/messages.h"

namespace dtorch {

namespace {

constexpr size_t kPackedHeader = 16;

SharedBytes copy_bytes(std::span<const std::byte> bytes) {
  return std::make_shared<const Bytes>(bytes.begin(), bytes.end());
}

}  // namespace

Bytes pack(const Message& message) {
  const size_t head_bytes = message.head ? message.head->size() : 0;
  Bytes bytes(kPackedHeader);
  bytes.reserve(kPackedHeader + head_bytes + (message.payload ? message.payload->size() : 0));
  bytes[0] = static_cast<std::byte>(message.kind);
  bytes[1] = static_cast<std::byte>(message.payload ? 1 : 0);
  std::memcpy(bytes.data() + 4, &message.epoch, sizeof message.epoch);
  const uint64_t length = head_bytes;
  std::memcpy(bytes.data() + 8, &length, sizeof length);
  if (message.head) bytes.insert(bytes.end(), message.head->begin(), message.head->end());
  if (message.payload) bytes.insert(bytes.end(), message.payload->begin(), message.payload->end());
  return bytes;
}

Message unpack(std::span<const std::byte> bytes) {
  if (bytes.size() < kPackedHeader) throw DecodeError("a packed control message is too short");
  if (!is_message_kind(std::to_integer<uint8_t>(bytes[0])))
    throw DecodeError("a packed control message is of an unknown kind");
  bool clean = bytes[1] <= std::byte{1};
  clean = clean && bytes[2] == std::byte{0} && bytes[3] == std::byte{0};
  uint64_t head_bytes = 0;
  std::memcpy(&head_bytes, bytes.data() + 8, sizeof head_bytes);
  const size_t rest = bytes.size() - kPackedHeader;
  const bool has_payload = bytes[1] == std::byte{1};
  if (!clean || head_bytes > rest || (!has_payload && head_bytes != rest))
    throw DecodeError("a packed control message is damaged");
  Message message{static_cast<MessageKind>(bytes[0]), copy_bytes(bytes.subspan(kPackedHeader, head_bytes)), nullptr};
  std::memcpy(&message.epoch, bytes.data() + 4, sizeof message.epoch);
  if (has_payload) message.payload = copy_bytes(bytes.subspan(kPackedHeader + head_bytes));
  return message;
}

}  // namespace dtorch
