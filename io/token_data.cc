// token_batch(file) -> (inputs [B, T], targets [B, T]): each device reads the windows of its own rows. scalars: [seed,
// step, first row].
#include "io/token_data.h"

#include <algorithm>
#include <cstring>

#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/operators.h"
#include "runtime/client/record.h"

namespace dtorch {
namespace {

struct TokenBatchAttrs {
  std::string path;
  DType dtype = kUInt8;        // in the file
  int64_t offset = 0;          // byte offset of token 0
  int64_t begin = 0, end = 0;  // token range
  int64_t batch = 0, length = 0;
  bool random = true;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("dtype", dtype);
    v("offset", offset);
    v("begin", begin);
    v("end", end);
    v("batch", batch);
    v("length", length);
    v("random", random);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& a = context.attributes<TokenBatchAttrs>();
  return {{Shape{a.batch, a.length}, kInt64}, {Shape{a.batch, a.length}, kInt64}};
}

// A well-mixed function of its arguments (splitmix64, Steele et al. 2014).
uint64_t mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// First token of a row's window, and how many tokens of it exist.
struct Window {
  int64_t first = 0, available = 0;
};
Window window_of(const TokenBatchAttrs& a, uint64_t seed, int64_t step, int64_t row) {
  if (a.random) {
    const auto places = static_cast<uint64_t>(a.end - a.begin - a.length);
    const uint64_t draw = mix(mix(mix(seed) ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(row));
    return {a.begin + static_cast<int64_t>(draw % places), a.length + 1};
  }
  const int64_t first = a.begin + (step * a.batch + row) * a.length;
  return {first, std::clamp<int64_t>(a.end - first, 0, a.length + 1)};
}

void kernel(KernelContext& context) {
  const auto& a = context.attributes<TokenBatchAttrs>();
  const auto seed = static_cast<uint64_t>(context.scalar(0).as_int());
  const int64_t step = context.scalar(1).as_int(), first_row = context.scalar(2).as_int();
  io::InputFile file(a.path);
  const int64_t width = size_of(a.dtype);
  std::vector<std::byte> raw;
  for (size_t i = 0; i < 2; ++i) {  // inputs, targets: targets are one token later
    const Box& box = context.output_box(i);
    NativeTensor out = NativeTensor::empty(box.size, kInt64);
    auto* to = reinterpret_cast<int64_t*>(out.data());
    const int64_t columns = box.size[1], shift = box.offset[1] + static_cast<int64_t>(i);
    raw.resize(static_cast<size_t>(columns * width));
    for (int64_t r = 0; r < box.size[0]; ++r, to += columns) {
      const Window window = window_of(a, seed, step, first_row + box.offset[0] + r);
      const int64_t have = std::clamp<int64_t>(window.available - shift, 0, columns);
      file.read(a.offset + (window.first + shift) * width, raw.data(), have * width);
      for (int64_t c = 0; c < columns; ++c) {
        int32_t wide = 0;
        if (c < have && width == 4) std::memcpy(&wide, raw.data() + c * 4, 4);
        if (c < have && width == 1) wide = std::to_integer<uint8_t>(raw[static_cast<size_t>(c)]);
        // A window's last token has no target of its own window's inputs beyond the range.
        to[c] = c < have ? wide : i == 0 ? 0 : -100;
      }
    }
    context.output(i) = std::move(out);
  }
}

}  // namespace

constinit OperatorDef token_batch_op = {
    .name = "token_batch",
    .signature = "TokenData::random_batch(batch, length, seed, step) -> (inputs, targets)",
    .attributes = attribute_codec<TokenBatchAttrs>(),
    .infer = infer,
    .kernel = kernel,
    .klass = OperatorClass::kRead,
    .placement_class = PlacementClass::kAnyLayout};

int64_t prepare_tokens(const std::vector<std::filesystem::path>& texts, const Tokenizer& tokenizer,
                       const std::filesystem::path& out) {
  const bool narrow = tokenizer.vocab() <= 256;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  int64_t count = 0;
  for (const auto& path : texts) {
    for (int64_t token : tokenizer.encode(io::read_file(path))) {
      const auto value = static_cast<int32_t>(token);
      const auto* from = reinterpret_cast<const std::byte*>(&value);  // little-endian: the low byte first
      bytes->insert(bytes->end(), from, from + (narrow ? 1 : sizeof value));
      ++count;
    }
  }
  if (count == 0) throw UserError("[prepare] the text is empty");
  std::filesystem::path temporary = out;
  temporary += ".tmp";
  std::filesystem::remove(temporary);
  try {
    io::Hdf5File file(temporary, io::Hdf5File::Mode::kCreate);
    file.write("tokens", HostTensor(Shape{count}, narrow ? kUInt8 : kInt32, bytes), /*contiguous=*/true);
    file.set_attribute("vocab", tokenizer.vocab());
    file.set_attribute("tokenizer", tokenizer.name());
    file.close();
    io::sync_path(temporary);
    io::commit_rename(temporary, out);
  } catch (...) {
    std::error_code ignored;  // the first failure is the one to report
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  return count;
}

int64_t prepare_bytes(const std::vector<std::filesystem::path>& texts, const std::filesystem::path& out) {
  return prepare_tokens(texts, *byte_tokenizer(), out);
}

TokenData TokenData::open(const std::filesystem::path& path) {
  io::Hdf5File file(path, io::Hdf5File::Mode::kRead);
  TokenData data;
  data.path_ = std::filesystem::absolute(path).string();
  const auto vocab = file.int_attribute("vocab");
  const std::vector<std::string> names = file.dataset_names();
  if (!vocab || std::find(names.begin(), names.end(), "tokens") == names.end()) {
    throw RuntimeFault(
        "'" + path.string() +
        "' isn't token data (no data set 'tokens' or attribute 'vocab'); make it with dtorch_app prepare");
  }
  const io::DatasetInfo info = file.info("tokens");
  if (info.shape.ndim() != 1 || info.file_offset < 0 || (info.dtype != kUInt8 && info.dtype != kInt32)) {
    throw RuntimeFault("'" + path.string() + "': tokens is " + name_of(info.dtype) + " " + info.shape.str() +
                       ", expected contiguous 1-D uint8 or int32");
  }
  if (*vocab < 1)
    throw RuntimeFault("'" + path.string() + "': its vocabulary has " + std::to_string(*vocab) + " tokens");
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  if (info.file_offset > bytes || info.shape[0] > (bytes - info.file_offset) / size_of(info.dtype))
    throw RuntimeFault("'" + path.string() + "' is cut short: it ends before its tokens do");
  data.vocab_ = *vocab;
  data.tokenizer_ = file.string_attribute("tokenizer").value_or("unknown");
  data.dtype_ = info.dtype;
  data.offset_ = info.file_offset;
  data.end_ = info.shape[0];
  return data;
}

TokenData TokenData::slice(double from, double to) const {
  if (!(0 <= from && from < to && to <= 1)) throw UserError("[TokenData::slice] shares must be 0 <= from < to <= 1");
  TokenData part = *this;
  const auto length = static_cast<double>(num_tokens());
  part.begin_ = begin_ + static_cast<int64_t>(from * length);
  part.end_ = begin_ + static_cast<int64_t>(to * length);
  return part;
}

Batch TokenData::record_batch(int64_t first_row, int64_t batch, int64_t length, bool random, uint64_t seed,
                              int64_t step, const TensorOptions& options, const Where& where) const {
  if (batch < 1 || length < 1) throw UserError("[TokenData] batch and length must be positive");
  if (num_tokens() < length + 1) {
    throw UserError("[TokenData] " + std::to_string(num_tokens()) + " tokens are fewer than one window of " +
                    std::to_string(length + 1));
  }
  const TokenBatchAttrs attributes{path_, dtype_, offset_, begin_, end_, batch, length, random};
  const Scalar scalars[] = {Scalar::of_int(static_cast<int64_t>(seed)), Scalar::of_int(step),
                            Scalar::of_int(first_row)};
  const Layout layout = options.layout(2, where);
  const Layout layouts[] = {layout, layout};
  auto [inputs, targets] =
      record_many<2>(token_batch_op, attributes, {}, where, {.scalars = scalars, .output_layouts = layouts});
  return {inputs, targets};
}

Batch TokenData::random_batch(int64_t batch, int64_t length, uint64_t seed, int64_t step, const TensorOptions& options,
                              Where where) const {
  return record_batch(0, batch, length, true, seed, step, options, where);
}

Batch TokenData::random_rows(int64_t first_row, int64_t rows, int64_t length, uint64_t seed, int64_t step,
                             const TensorOptions& options, Where where) const {
  if (first_row < 0) throw UserError("[TokenData] the first row must not be negative");
  return record_batch(first_row, rows, length, true, seed, step, options, where);
}

Batch TokenData::sequential_batch(int64_t batch, int64_t length, int64_t step, const TensorOptions& options,
                                  Where where) const {
  return record_batch(0, batch, length, false, 0, step, options, where);
}

int64_t TokenData::num_sequential_batches(int64_t batch, int64_t length) const {
  const int64_t windows = (num_tokens() - 1 + length - 1) / length;
  return (windows + batch - 1) / batch;
}

}  // namespace dtorch
