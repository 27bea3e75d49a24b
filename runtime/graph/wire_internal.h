// Shared by wire.cc and piece_wire.cc: finishing and verifying FlatBuffers. Pure functions, any thread. Not for other
// rooms.
#pragma once
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/messages.h"
#include "runtime/graph/messages_generated.h"

namespace dtorch::wire {

static_assert(FLATBUFFERS_LITTLEENDIAN, "the wire form is copied from memory");

// Heads are FlatBuffers, whose offsets end at 2 GiB.
inline constexpr size_t kMaxHeadBytes = size_t{1} << 30;

[[noreturn]] void fail(MessageKind kind, const std::string& what);

// The four letters that say kind and version.
void put_identifier(MessageKind kind, char* four_letters);

// Seals the buffer with the kind's identifier and copies it out.
void seal(flatbuffers::FlatBufferBuilder& builder, flatbuffers::uoffset_t root, Message& message);
template <class T>
Message seal(flatbuffers::FlatBufferBuilder& builder, flatbuffers::Offset<T> root, MessageKind kind,
             SharedBytes payload = nullptr) {
  Message message{kind, nullptr, std::move(payload)};
  seal(builder, root.o, message);
  return message;
}

// Throws DecodeError unless the message is of this kind and carries a head whose identifier is right and whose size is
// sane.
void check_envelope(const Message& message, MessageKind kind);
// The root table of a head that passed FlatBuffers' verifier. It points into the message.
template <class T>
const T& verified(const Message& message, MessageKind kind) {
  check_envelope(message, kind);
  const Bytes& head = *message.head;
  const auto* data = reinterpret_cast<const uint8_t*>(head.data());
  // A table takes at least 8 bytes, so an honest head can't hold more.
  flatbuffers::Verifier verifier(data, head.size(), 8, static_cast<flatbuffers::uoffset_t>(head.size() / 8 + 1));
  if (!verifier.VerifyBuffer<T>(nullptr)) fail(kind, "the bytes are damaged");
  return *flatbuffers::GetRoot<T>(data);
}

// Takes vectors out of a verified head. Hostile bytes may let many tables point at one vector; the reader refuses to
// copy out more bytes than the head has, so that memory and time stay proportional to the message.
class Reader {
 public:
  Reader(const Message& message, MessageKind kind) : kind_(kind), bytes_left_(message.head->size()) {}

  // Absent vectors read as empty. Elements may be misaligned in hostile bytes, hence the copy.
  template <class T, class V>
  std::vector<T> items(const V* vector) {
    std::vector<T> result(count<T>(vector));
    if (!result.empty()) std::memcpy(result.data(), vector->Data(), result.size() * sizeof(T));
    return result;
  }
  template <class V>
  std::string bytes(const V* vector) {
    const size_t size = count<char>(vector);
    return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(vector->Data()), size);
  }
  // At most kMaxDims sizes, none negative.
  Shape sizes(const flatbuffers::Vector<int64_t>* vector, const char* what);
  Shape shape_of(std::span<const int64_t> sizes, const char* what) const;  // the same of sizes taken out before
  [[noreturn]] void fail(const std::string& what) const { wire::fail(kind_, what); }
  void require(bool condition, const char* what) const {
    if (!condition) fail(what);
  }

 private:
  template <class T, class V>
  size_t count(const V* vector) {
    if (vector == nullptr) return 0;
    const size_t size = vector->size();
    if (size * sizeof(T) > bytes_left_) fail("its parts overlap");
    bytes_left_ -= size * sizeof(T);
    return size;
  }
  MessageKind kind_;
  size_t bytes_left_;
};

flatbuffers::Offset<DeviceMemory> put(flatbuffers::FlatBufferBuilder& builder, const dtorch::DeviceMemory& memory);
// Throws DecodeError when a number can't be.
dtorch::DeviceMemory take_memory(Reader& reader, const DeviceMemory& table);

template <class T>
flatbuffers::Offset<flatbuffers::Vector<T>> put(flatbuffers::FlatBufferBuilder& builder, const T* items, size_t size) {
  return builder.CreateVector(items, size);
}
template <class T>
flatbuffers::Offset<flatbuffers::Vector<T>> put(flatbuffers::FlatBufferBuilder& builder, const std::vector<T>& items) {
  return put(builder, items.data(), items.size());
}
inline flatbuffers::Offset<flatbuffers::Vector<int64_t>> put(flatbuffers::FlatBufferBuilder& builder,
                                                             const Shape& shape) {
  return put(builder, shape.data(), static_cast<size_t>(shape.size()));
}
inline flatbuffers::Offset<flatbuffers::Vector<uint8_t>> put_bytes(flatbuffers::FlatBufferBuilder& builder,
                                                                   const std::string& bytes) {
  return put(builder, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace dtorch::wire
