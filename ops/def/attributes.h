// Attributes of an operator: a plain struct with one field list that encodes, decodes, prints, compares (as bytes) and
// hashes it.
//
//   struct SoftmaxAttrs {
//     int64_t dim = -1;
//     template <class V> void fields(V& v) { v("dim", dim); }
//   };
//
// Field types: bool, int64_t, double, DType, ReduceOp, Shape, std::string, std::vector<int64_t>, Placements.
// What changes from call to call and doesn't influence inference is a Scalar of the call instead (logical_graph.h).
#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/dtype.h"
#include "mesh/placement.h"
#include "mesh/shape.h"
#include "runtime/base/error.h"

namespace dtorch {

struct NoAttrs {
  template <class V>
  void fields(V&) {}
};

// Out: std::string, or what has its push_back and append.
template <class Out>
class BasicAttributeEncoder {
 public:
  explicit BasicAttributeEncoder(Out& out) : out_(out) {}
  void operator()(const char*, bool v) { out_.push_back(v ? 1 : 0); }
  void operator()(const char*, int64_t v) { raw(&v, sizeof v); }
  void operator()(const char*, double v) { raw(&v, sizeof v); }
  void operator()(const char*, DType v) { out_.push_back(static_cast<char>(v)); }
  void operator()(const char*, ReduceOp v) { out_.push_back(static_cast<char>(v)); }
  void operator()(const char* name, const Shape& v) { list(name, v); }
  void operator()(const char* name, const std::vector<int64_t>& v) { list(name, v); }
  void operator()(const char* name, const std::string& v) {
    (*this)(name, static_cast<int64_t>(v.size()));
    raw(v.data(), v.size());
  }
  void operator()(const char* name, const Placements& v) {
    (*this)(name, static_cast<int64_t>(v.size()));
    for (const Placement& p : v) {
      out_.push_back(static_cast<char>(p.kind));
      out_.push_back(static_cast<char>(p.reduce));
      (*this)(name, static_cast<int64_t>(p.dim));
    }
  }

 private:
  void raw(const void* data, size_t size) { out_.append(static_cast<const char*>(data), size); }
  template <class L>
  void list(const char* name, const L& v) {
    (*this)(name, static_cast<int64_t>(v.size()));
    for (int64_t item : v) (*this)(name, item);
  }
  Out& out_;
};
using AttributeEncoder = BasicAttributeEncoder<std::string>;

// The encoded attributes of one call: on the stack, unless there are many.
class CallAttributes {
 public:
  template <class A>
  explicit CallAttributes(const A& attributes) {
    BasicAttributeEncoder<CallAttributes> encoder(*this);
    const_cast<A&>(attributes).fields(encoder);  // the encoder only reads
  }
  CallAttributes(const CallAttributes&) = delete;
  CallAttributes& operator=(const CallAttributes&) = delete;
  // Valid as long as this object.
  std::string_view bytes() const { return size_ <= sizeof inline_ ? std::string_view(inline_, size_) : many_; }

  // --- for the encoder
  void push_back(char byte) { append(&byte, 1); }
  void append(const char* data, size_t size) {
    const size_t before = size_;
    size_ += size;
    if (size_ <= sizeof inline_) {
      std::memcpy(inline_ + before, data, size);
    } else {
      append_many(data, size, before);
    }
  }

 private:
  void append_many(const char* data, size_t size, size_t before);
  size_t size_ = 0;
  char inline_[96];
  std::string many_;  // all of them, when they don't fit inline_
};

// Throws DecodeError on bytes that don't decode.
class AttributeDecoder {
 public:
  explicit AttributeDecoder(const std::string& in) : in_(in) {}
  void operator()(const char* name, bool& v) { v = byte(name, 1) != 0; }
  void operator()(const char* name, int64_t& v) { raw(name, &v, sizeof v); }
  void operator()(const char* name, double& v) { raw(name, &v, sizeof v); }
  void operator()(const char* name, DType& v) { v = static_cast<DType>(byte(name, kNumDTypes - 1)); }
  void operator()(const char* name, ReduceOp& v) { v = static_cast<ReduceOp>(byte(name, 3)); }
  void operator()(const char* name, Shape& v) { list(name, v, kMaxDims); }
  void operator()(const char* name, std::vector<int64_t>& v) { list(name, v, 1 << 20); }
  void operator()(const char* name, std::string& v) {
    int64_t size = count(name, static_cast<int64_t>(in_.size()));
    need(name, size);
    v.assign(in_, at_, static_cast<size_t>(size));
    at_ += static_cast<size_t>(size);
  }
  void operator()(const char* name, Placements& v) {
    int64_t size = count(name, kMaxAxes);
    v.clear();
    for (int64_t i = 0; i < size; ++i) {
      Placement p;
      p.kind = static_cast<Placement::Kind>(byte(name, 2));
      p.reduce = static_cast<ReduceOp>(byte(name, 3));
      int64_t dim = 0;
      (*this)(name, dim);
      p.dim = static_cast<int32_t>(dim);
      v.push_back(p);
    }
  }
  void finish() const;  // throws when bytes are left

 private:
  void need(const char* name, int64_t size) const;
  uint8_t byte(const char* name, int max);
  void raw(const char* name, void* data, size_t size);
  int64_t count(const char* name, int64_t max);
  template <class L>
  void list(const char* name, L& v, int64_t max) {
    int64_t size = count(name, max);
    v.clear();
    for (int64_t i = 0; i < size; ++i) {
      int64_t item = 0;
      (*this)(name, item);
      v.push_back(item);
    }
  }
  const std::string& in_;
  size_t at_ = 0;
};

class AttributePrinter {
 public:
  void operator()(const char* name, bool v) { field(name, v ? "true" : "false"); }
  void operator()(const char* name, int64_t v) { field(name, std::to_string(v)); }
  void operator()(const char* name, double v) { field(name, number(v)); }
  void operator()(const char* name, DType v) { field(name, name_of(v)); }
  void operator()(const char* name, ReduceOp v) { field(name, name_of(v)); }
  void operator()(const char* name, const Shape& v) { field(name, v.str()); }
  void operator()(const char* name, const std::string& v) { field(name, "\"" + v + "\""); }
  void operator()(const char* name, const Placements& v) { field(name, v.str()); }
  void operator()(const char* name, const std::vector<int64_t>& v);
  const std::string& str() const { return out_; }

 private:
  static std::string number(double v);
  void field(const char* name, const std::string& text);
  std::string out_;
};

// What the rest of the system knows of an attribute struct.
struct AttributeCodec {
  std::shared_ptr<const void> (*decode)(const std::string& bytes) = nullptr;
  std::string (*print)(const std::string& bytes) = nullptr;
  std::string (*encode)(const void* attributes) = nullptr;  // what decode gave
};

template <class A>
std::string encode_attributes(const A& attributes) {
  std::string bytes;
  AttributeEncoder encoder(bytes);
  const_cast<A&>(attributes).fields(encoder);  // the encoder only reads
  return bytes;
}
template <class A>
std::shared_ptr<const A> decode_attributes(const std::string& bytes) {
  auto attributes = std::make_shared<A>();
  AttributeDecoder decoder(bytes);
  attributes->fields(decoder);
  decoder.finish();
  return attributes;
}
template <class A>
constexpr AttributeCodec attribute_codec() {
  return {[](const std::string& bytes) -> std::shared_ptr<const void> { return decode_attributes<A>(bytes); },
          [](const std::string& bytes) {
            auto attributes = std::const_pointer_cast<A>(decode_attributes<A>(bytes));
            AttributePrinter printer;
            attributes->fields(printer);
            return printer.str();
          },
          [](const void* attributes) { return encode_attributes(*static_cast<const A*>(attributes)); }};
}

}  // namespace dtorch
