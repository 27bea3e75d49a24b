#include "ops/def/attributes.h"

#include <charconv>

namespace dtorch {

void CallAttributes::append_many(const char* data, size_t size, size_t before) {
  if (before <= sizeof inline_) many_.assign(inline_, before);
  many_.append(data, size);
}

void AttributeDecoder::need(const char* name, int64_t size) const {
  if (size < 0 || static_cast<size_t>(size) > in_.size() - at_) {
    throw DecodeError(std::string("attribute '") + name + "' is cut short");
  }
}

uint8_t AttributeDecoder::byte(const char* name, int max) {
  need(name, 1);
  auto value = static_cast<uint8_t>(in_[at_++]);
  if (value > max) {
    throw DecodeError(std::string("attribute '") + name + "' has code " + std::to_string(value) + ", allowed 0 to " +
                      std::to_string(max));
  }
  return value;
}

void AttributeDecoder::raw(const char* name, void* data, size_t size) {
  need(name, static_cast<int64_t>(size));
  std::memcpy(data, in_.data() + at_, size);
  at_ += size;
}

int64_t AttributeDecoder::count(const char* name, int64_t max) {
  int64_t value = 0;
  raw(name, &value, sizeof value);
  if (value < 0 || value > max) {
    throw DecodeError(std::string("attribute '") + name + "' has " + std::to_string(value) + " items, allowed 0 to " +
                      std::to_string(max));
  }
  return value;
}

void AttributeDecoder::finish() const {
  if (at_ != in_.size()) throw DecodeError("attributes have " + std::to_string(in_.size() - at_) + " bytes too many");
}

void AttributePrinter::operator()(const char* name, const std::vector<int64_t>& v) {
  std::string text = "[";
  for (size_t i = 0; i < v.size(); ++i) text += (i ? ", " : "") + std::to_string(v[i]);
  field(name, text + "]");
}

std::string AttributePrinter::number(double v) {
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  return {buffer, end};
}

void AttributePrinter::field(const char* name, const std::string& text) {
  if (!out_.empty()) out_ += ", ";
  out_ += std::string(name) + "=" + text;
}

}  // namespace dtorch
