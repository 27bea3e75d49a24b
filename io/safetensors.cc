#include "io/safetensors.h"

#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/slices.h"

namespace dtorch::safetensors {
namespace {

constexpr int64_t kMaxHeader = 100 << 20;

DType dtype_from_tag(const std::string& tag) {
  static const std::map<std::string, DType> kTags = {
      {"BOOL", kBool}, {"U8", kUInt8},    {"I8", kInt8},       {"I16", kInt16},   {"I32", kInt32},
      {"I64", kInt64}, {"F16", kFloat16}, {"BF16", kBFloat16}, {"F32", kFloat32}, {"F64", kFloat64}};
  auto found = kTags.find(tag);
  if (found == kTags.end()) throw DecodeError("its dtype '" + tag + "' isn't one that DTorch has");
  return found->second;
}

// Throws DecodeError or nlohmann's exception.
Entry parse_entry(const nlohmann::json& item, int64_t data_start, int64_t data_size) {
  Entry entry;
  entry.dtype = dtype_from_tag(item.at("dtype").get<std::string>());
  for (const auto& size : item.at("shape")) {
    const auto value = size.get<int64_t>();
    if (!size.is_number_integer() || value < 0) throw DecodeError("a size of its shape isn't a natural number");
    entry.shape.push_back(value);
  }
  const auto& offsets = item.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) throw DecodeError("data_offsets isn't a pair");
  const auto begin = offsets[0].get<int64_t>(), end = offsets[1].get<int64_t>();
  if (begin < 0 || end < begin || end > data_size) throw DecodeError("data_offsets lie outside of the file");
  const int64_t elements = entry.shape.num_elements();
  if (elements > data_size || end - begin != elements * size_of(entry.dtype)) {
    throw DecodeError("data_offsets span " + std::to_string(end - begin) + " bytes, shape " + entry.shape.str() +
                      " of " + name_of(entry.dtype) + " needs another number");
  }
  entry.offset = data_start + begin;
  return entry;
}

}  // namespace

File open(const std::filesystem::path& path) {
  io::InputFile file(path);
  const std::string where = "'" + path.string() + "' isn't a valid safetensors file: ";
  if (file.size() < 8) throw DecodeError(where + "it has " + std::to_string(file.size()) + " bytes");
  unsigned char raw[8];
  file.read(0, raw, 8);
  uint64_t header_size = 0;
  for (int i = 7; i >= 0; --i) header_size = header_size << 8 | raw[i];
  if (header_size > static_cast<uint64_t>(kMaxHeader) || static_cast<int64_t>(header_size) > file.size() - 8) {
    throw DecodeError(where + "its header would be " + std::to_string(header_size) + " bytes long");
  }
  std::string header(header_size, '\0');
  file.read(8, header.data(), static_cast<int64_t>(header_size));
  const int64_t data_start = 8 + static_cast<int64_t>(header_size);

  File out;
  out.path_ = path;
  const nlohmann::json json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DecodeError(where + "its header isn't a JSON object");
  for (const auto& [name, item] : json.items()) {
    if (name == "__metadata__") continue;
    try {
      out.entries_.emplace(name, parse_entry(item, data_start, file.size() - data_start));
    } catch (const std::exception& error) {
      throw DecodeError(where + "tensor '" + name + "': " + error.what());
    }
  }
  return out;
}

Tensor File::load(const std::string& name, DType dtype, const Layout& layout, Where where) const {
  auto found = entries_.find(name);
  if (found == entries_.end()) throw KeyError("'" + path_.string() + "' has no tensor '" + name + "'");
  const Entry& entry = found->second;
  return io::file_slice(path_, entry.offset, entry.shape, entry.dtype, dtype, layout, where);
}

File::operator nn::Module::Source() const {
  nn::Module::Source source;
  for (const auto& [name, entry] : entries_) source.names.push_back(name);
  auto entries = std::make_shared<std::map<std::string, Entry>>(entries_);
  source.shape_of = [entries](const std::string& name) { return entries->at(name).shape; };
  source.load = [entries, path = path_](const std::string& name, const nn::Parameter& parameter) {
    const Entry& entry = entries->at(name);
    return io::file_slice(path, entry.offset, parameter.shape(), entry.dtype, parameter.value().dtype(),
                          parameter.layout());
  };
  return source;
}

}  // namespace dtorch::safetensors
