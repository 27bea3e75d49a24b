// Writes small GGUF files for tests.
#pragma once
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace dtorch::test {

class GgufWriter {
 public:
  void text(const std::string& key, const std::string& value) {
    begin_value(key, 8);
    put_text(values_, value);
  }
  void integer(const std::string& key, uint32_t value) {
    begin_value(key, 4);
    put(values_, value);
  }
  void number(const std::string& key, float value) {
    begin_value(key, 6);
    put(values_, value);
  }
  void texts(const std::string& key, const std::vector<std::string>& all) {
    begin_value(key, 9);
    put(values_, uint32_t{8});
    put(values_, static_cast<uint64_t>(all.size()));
    for (const std::string& one : all) put_text(values_, one);
  }
  void integers(const std::string& key, const std::vector<int32_t>& all) {
    begin_value(key, 9);
    put(values_, uint32_t{5});
    put(values_, static_cast<uint64_t>(all.size()));
    for (int32_t one : all) put(values_, one);
  }
  // shape: outermost first; data: in the encoding with that code.
  void tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t encoding, const std::string& data) {
    put_text(tensors_, name);
    put(tensors_, static_cast<uint32_t>(shape.size()));
    for (size_t d = shape.size(); d-- > 0;) put(tensors_, shape[d]);
    put(tensors_, encoding);
    put(tensors_, static_cast<uint64_t>(data_.size()));
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    ++num_tensors_;
  }
  std::string bytes() const {
    std::string all = "GGUF";
    put(all, uint32_t{3});
    put(all, num_tensors_);
    put(all, num_values_);
    all += values_ + tensors_;
    all.resize((all.size() + 31) / 32 * 32, '\0');
    return all + data_;
  }
  void write(const std::string& path) const {
    const std::string all = bytes();
    std::ofstream(path, std::ios::binary).write(all.data(), static_cast<std::streamsize>(all.size()));
  }

 private:
  template <class T>
  static void put(std::string& out, T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out.append(raw, sizeof(T));
  }
  static void put_text(std::string& out, const std::string& text) {
    put(out, static_cast<uint64_t>(text.size()));
    out += text;
  }
  void begin_value(const std::string& key, uint32_t type) {
    put_text(values_, key);
    put(values_, type);
    ++num_values_;
  }
  std::string values_, tensors_, data_;
  uint64_t num_values_ = 0, num_tensors_ = 0;
};

}  // namespace dtorch::test
