#include "io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/file.h"

namespace dtorch::gguf {
namespace {

constexpr int64_t kMaxHeader = int64_t{256} << 20;
constexpr uint32_t kMaxDims = 4;

// Reads the head of a file in order; every length is checked against the bytes that are there.
class Reader {
 public:
  explicit Reader(const io::InputFile& file) : bytes_(std::min(file.size(), kMaxHeader)) {
    data_.resize(static_cast<size_t>(bytes_));
    file.read(0, data_.data(), bytes_);
  }
  int64_t at() const { return at_; }

  const std::byte* take(uint64_t count) {
    if (count > static_cast<uint64_t>(bytes_ - at_)) throw DecodeError("it ends in the middle of its head");
    const std::byte* from = data_.data() + at_;
    at_ += static_cast<int64_t>(count);
    return from;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  std::string text() {
    const auto length = number<uint64_t>();
    return {reinterpret_cast<const char*>(take(length)), static_cast<size_t>(length)};
  }

 private:
  int64_t bytes_, at_ = 0;
  std::vector<std::byte> data_;
};

enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

Value read_scalar(Reader& in, uint32_t type) {
  switch (type) {
    case kU8:
      return static_cast<int64_t>(in.number<uint8_t>());
    case kI8:
      return static_cast<int64_t>(in.number<int8_t>());
    case kU16:
      return static_cast<int64_t>(in.number<uint16_t>());
    case kI16:
      return static_cast<int64_t>(in.number<int16_t>());
    case kU32:
      return static_cast<int64_t>(in.number<uint32_t>());
    case kI32:
      return static_cast<int64_t>(in.number<int32_t>());
    case kU64:
      return static_cast<int64_t>(in.number<uint64_t>());
    case kI64:
      return in.number<int64_t>();
    case kF32:
      return static_cast<double>(in.number<float>());
    case kF64:
      return in.number<double>();
    case kBool:
      return in.number<uint8_t>() != 0;
    case kString:
      return in.text();
    default:
      throw DecodeError("a value has type " + std::to_string(type) + ", known are 0 to 12");
  }
}

Value read_array(Reader& in) {
  const auto type = in.number<uint32_t>();
  const auto count = in.number<uint64_t>();
  if (type == kArray) throw DecodeError("an array of arrays isn't supported");
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < count; ++i) {
    const Value value = read_scalar(in, type);
    if (const auto* integer = std::get_if<int64_t>(&value)) integers.push_back(*integer);
    if (const auto* flag = std::get_if<bool>(&value)) integers.push_back(*flag ? 1 : 0);
    if (const auto* number = std::get_if<double>(&value)) numbers.push_back(*number);
    if (const auto* text = std::get_if<std::string>(&value)) texts.push_back(*text);
  }
  if (type == kString) return texts;
  if (type == kF32 || type == kF64) return numbers;
  return integers;
}

Entry read_entry(Reader& in) {
  Entry entry;
  const auto ndim = in.number<uint32_t>();
  if (ndim > kMaxDims) throw DecodeError("it has " + std::to_string(ndim) + " dims, allowed are 4");
  std::vector<int64_t> inner_first;
  for (uint32_t d = 0; d < ndim; ++d) {
    const auto size = in.number<uint64_t>();
    if (size > (uint64_t{1} << 40)) throw DecodeError("a size of " + std::to_string(size));
    inner_first.push_back(static_cast<int64_t>(size));
  }
  entry.shape = Shape(inner_first.rbegin(), inner_first.rend());
  entry.encoding = static_cast<Encoding>(in.number<uint32_t>());
  const auto offset = in.number<uint64_t>();
  if (offset > (uint64_t{1} << 50)) throw DecodeError("an offset of " + std::to_string(offset));
  entry.offset = static_cast<int64_t>(offset);
  (void)block_bytes(entry.encoding);
  return entry;
}

void check_inside(const Entry& entry, int64_t file_size) {
  const int64_t elements = entry.shape.num_elements(), block = block_elements(entry.encoding);
  const int64_t row = entry.shape.ndim() == 0 ? 1 : entry.shape.back();
  if (row % block != 0) throw DecodeError("its rows of " + std::to_string(row) + " aren't whole blocks");
  const int64_t blocks = elements / block;
  if (blocks > file_size || entry.offset > file_size - blocks * block_bytes(entry.encoding))
    throw DecodeError("it leaves the file");
}

template <class T>
const T& value_of(const File& file, const std::string& key, const char* kind) {
  const auto found = file.values().find(key);
  if (found == file.values().end()) throw KeyError("'" + file.path().string() + "' has no key '" + key + "'");
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) throw DecodeError("'" + file.path().string() + "': key '" + key + "' isn't " + kind);
  return *value;
}

}  // namespace

int64_t block_elements(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
    case Encoding::kF16:
    case Encoding::kBF16:
      return 1;
    case Encoding::kQ4_0:
    case Encoding::kQ4_1:
    case Encoding::kQ8_0:
      return 32;
  }
  throw DecodeError("encoding " + std::to_string(static_cast<uint32_t>(encoding)) +
                    " isn't supported; supported are F32, F16, BF16, Q4_0, Q4_1 and Q8_0");
}

int64_t block_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
      return 4;
    case Encoding::kF16:
    case Encoding::kBF16:
      return 2;
    case Encoding::kQ4_0:
      return 18;
    case Encoding::kQ4_1:
      return 20;
    case Encoding::kQ8_0:
      return 34;
  }
  return block_elements(encoding);  // throws
}

int64_t File::integer(const std::string& key) const { return value_of<int64_t>(*this, key, "an integer"); }
double File::number(const std::string& key) const { return value_of<double>(*this, key, "a number"); }
const std::string& File::text(const std::string& key) const { return value_of<std::string>(*this, key, "text"); }
const std::vector<std::string>& File::texts(const std::string& key) const {
  return value_of<std::vector<std::string>>(*this, key, "a list of texts");
}
const std::vector<int64_t>& File::integers(const std::string& key) const {
  return value_of<std::vector<int64_t>>(*this, key, "a list of integers");
}

File open(const std::filesystem::path& path) {
  static_assert(std::endian::native == std::endian::little);
  const io::InputFile file(path);
  const std::string where = "'" + path.string() + "' isn't a valid GGUF file: ";
  File out;
  out.path_ = path;
  try {
    Reader in(file);
    if (std::memcmp(in.take(4), "GGUF", 4) != 0) throw DecodeError("it doesn't start with GGUF");
    const auto version = in.number<uint32_t>();
    if (version != 2 && version != 3) throw DecodeError("version " + std::to_string(version) + ", known are 2 and 3");
    const auto num_tensors = in.number<uint64_t>(), num_values = in.number<uint64_t>();
    for (uint64_t i = 0; i < num_values; ++i) {
      std::string key = in.text();
      const auto type = in.number<uint32_t>();
      out.values_[std::move(key)] = type == kArray ? read_array(in) : read_scalar(in, type);
    }
    for (uint64_t i = 0; i < num_tensors; ++i) {
      std::string name = in.text();
      try {
        out.entries_[name] = read_entry(in);
      } catch (const DecodeError& error) {
        throw DecodeError("tensor '" + name + "': " + error.what());
      }
    }
    int64_t alignment = 32;
    if (out.values_.contains("general.alignment")) alignment = out.integer("general.alignment");
    if (alignment <= 0 || alignment > (1 << 20)) throw DecodeError("an alignment of " + std::to_string(alignment));
    const int64_t data = (in.at() + alignment - 1) / alignment * alignment;
    for (auto& [name, entry] : out.entries_) {
      entry.offset += data;
      try {
        check_inside(entry, file.size());
      } catch (const std::exception& error) {
        throw DecodeError("tensor '" + name + "': " + error.what());
      }
    }
  } catch (const DecodeError& error) {
    throw DecodeError(where + error.what());
  }
  return out;
}

}  // namespace dtorch::gguf
