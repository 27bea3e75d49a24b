// Listing, comparing and exporting checkpoints. Tensors are read in blocks of whole rows, so that memory stays bounded.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "io/checkpoint.h"
#include "io/checkpoint_files.h"
#include "io/file.h"
#include "io/hdf5_file.h"

namespace dtorch::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kBlockBytes = 64 << 20;

fs::path model_of(const fs::path& directory) {
  const auto found = newest_complete(directory);
  if (!found) throw RuntimeFault("no complete checkpoint in '" + directory.string() + "'");
  return found->path / kModel;
}

// Calls f(box, bytes of it) along the first dim.
void for_each_block(const io::DatasetInfo& info, const std::function<void(const Box&, int64_t num_bytes)>& f) {
  const int64_t bytes = info.shape.num_elements() * size_of(info.dtype);
  if (bytes == 0) return;
  Box box = whole(info.shape);
  if (info.shape.ndim() == 0) return f(box, bytes);
  const int64_t row = bytes / info.shape[0], rows = std::max<int64_t>(kBlockBytes / row, 1);
  for (int64_t first = 0; first < info.shape[0]; first += rows) {
    box.offset[0] = first;
    box.size[0] = std::min(rows, info.shape[0] - first);
    f(box, box.size[0] * row);
  }
}

const char* tag_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BOOL";
    case DType::kUInt8:
      return "U8";
    case DType::kInt8:
      return "I8";
    case DType::kInt16:
      return "I16";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      break;
  }
  return "F64";
}

bool same_bits(const io::Hdf5File& a, const io::Hdf5File& b, const std::string& name, const io::DatasetInfo& info) {
  bool same = true;
  std::vector<std::byte> one, other;
  for_each_block(info, [&](const Box& box, int64_t num_bytes) {
    if (!same) return;
    one.resize(static_cast<size_t>(num_bytes));
    other.resize(static_cast<size_t>(num_bytes));
    a.read_box(name, box, one.data());
    b.read_box(name, box, other.data());
    same = one == other;
  });
  return same;
}

}  // namespace

std::vector<Listed> list(const fs::path& directory) {
  auto all = committed(directory);
  std::error_code error;
  if (fs::exists(directory / kManifest, error)) all = {{0, directory}};
  if (all.empty()) throw RuntimeFault("no checkpoint in '" + directory.string() + "'");
  std::vector<Listed> out;
  for (const auto& [step, path] : all) {
    Listed listed{path, step, 0, 0, {}};
    try {
      const Manifest manifest = read_complete(path);
      listed.step = manifest.step;
      listed.num_files = static_cast<int64_t>(manifest.files.size());
      for (const auto& [name, facts] : manifest.files) listed.bytes += facts.bytes;
    } catch (const std::exception& failure) {
      listed.problem = failure.what();
    }
    out.push_back(std::move(listed));
  }
  return out;
}

std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
  const io::Hdf5File one(model_of(a), io::Hdf5File::Mode::kRead), other(model_of(b), io::Hdf5File::Mode::kRead);
  const auto in_one = one.dataset_names(), in_other = other.dataset_names();  // sorted
  std::vector<std::string> lines;
  for (const std::string& name : in_one) {
    if (!std::binary_search(in_other.begin(), in_other.end(), name)) {
      lines.push_back("only in the first: " + name);
      continue;
    }
    const io::DatasetInfo info = one.info(name), there = other.info(name);
    if (!(info.shape == there.shape) || info.dtype != there.dtype) {
      lines.push_back(name + ": " + name_of(info.dtype) + " " + info.shape.str() + " and " + name_of(there.dtype) +
                      " " + there.shape.str());
    } else if (!same_bits(one, other, name, info)) {
      lines.push_back(name + ": values differ");
    }
  }
  for (const std::string& name : in_other) {
    if (!std::binary_search(in_one.begin(), in_one.end(), name)) lines.push_back("only in the second: " + name);
  }
  return lines;
}

int64_t export_safetensors(const fs::path& directory, const fs::path& out) {
  const io::Hdf5File file(model_of(directory), io::Hdf5File::Mode::kRead);
  const std::string prefix = "model/";
  std::vector<std::string> names;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t offset = 0;
  for (const std::string& name : file.dataset_names()) {
    if (!name.starts_with(prefix)) continue;
    const io::DatasetInfo info = file.info(name);
    const int64_t end = offset + info.shape.num_elements() * size_of(info.dtype);
    header[name.substr(prefix.size())] = {{"dtype", tag_of(info.dtype)},
                                          {"shape", std::vector<int64_t>(info.shape.begin(), info.shape.end())},
                                          {"data_offsets", {offset, end}}};
    offset = end;
    names.push_back(name);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  fs::path temporary = out;
  temporary += ".tmp";
  std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
  for (int i = 0; i < 8; ++i) stream.put(static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i)));
  stream << text;
  std::vector<char> block;
  for (const std::string& name : names) {
    for_each_block(file.info(name), [&](const Box& box, int64_t num_bytes) {
      block.resize(static_cast<size_t>(num_bytes));
      file.read_box(name, box, block.data());
      stream.write(block.data(), num_bytes);
    });
  }
  stream.close();
  if (!stream) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw RuntimeFault("cannot write '" + out.string() + "'");
  }
  io::sync_path(temporary);
  io::commit_rename(temporary, out);
  return static_cast<int64_t>(names.size());
}

}  // namespace dtorch::checkpoint
