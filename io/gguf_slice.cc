// gguf_slice: a tensor of a GGUF file, decoded by the devices that hold it, each one its own part.
#include <algorithm>
#include <cstring>
#include <vector>

#include "io/file.h"
#include "io/gguf.h"
#include "io/operators.h"
#include "runtime/client/record.h"

namespace dtorch {
namespace {

using gguf::Encoding;

struct GgufAttrs {
  std::string path;
  int64_t offset = 0, encoding = 0, row = 0, rotary_head_rows = 0;  // row: elements of a row in the file
  Shape shape;
  DType dtype = kFloat32;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("offset", offset);
    v("encoding", encoding);
    v("row", row);
    v("rotary_head_rows", rotary_head_rows);
    v("shape", shape);
    v("dtype", dtype);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& a = context.attributes<GgufAttrs>();
  return {{a.shape, a.dtype}};
}

float half_at(const std::byte* from) {
  Float16 value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<float>(value);
}

// The elements of one block.
void decode_block(Encoding encoding, const std::byte* block, float* out) {
  switch (encoding) {
    case Encoding::kF32:
      std::memcpy(out, block, sizeof(float));
      return;
    case Encoding::kF16:
      *out = half_at(block);
      return;
    case Encoding::kBF16: {
      BFloat16 value;
      std::memcpy(&value, block, sizeof value);
      *out = static_cast<float>(value);
      return;
    }
    case Encoding::kQ8_0: {
      const float d = half_at(block);
      for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
      return;
    }
    case Encoding::kQ4_0:
    case Encoding::kQ4_1: {
      const bool has_minimum = encoding == Encoding::kQ4_1;
      const float d = half_at(block), m = has_minimum ? half_at(block + 2) : -8 * d;
      const std::byte* nibbles = block + (has_minimum ? 4 : 2);
      for (int i = 0; i < 16; ++i) {
        const auto both = static_cast<uint8_t>(nibbles[i]);
        out[i] = d * static_cast<float>(both & 15) + m;
        out[i + 16] = d * static_cast<float>(both >> 4) + m;
      }
      return;
    }
  }
}

// The file's row of row r: with pairs of a head's rows stored as neighbours, half h of pair i is row 2 i + h.
int64_t stored_row(int64_t r, int64_t head_rows) {
  if (head_rows == 0) return r;
  const int64_t in_head = r % head_rows, half = head_rows / 2;
  return r - in_head + 2 * (in_head % half) + in_head / half;
}

void kernel(KernelContext& context) {
  const auto& a = context.attributes<GgufAttrs>();
  const auto encoding = static_cast<Encoding>(a.encoding);
  const int64_t elements = gguf::block_elements(encoding), bytes = gguf::block_bytes(encoding);
  const int64_t row_bytes = a.row / elements * bytes;
  NativeTensor out = NativeTensor::empty(context.output_box(0).size, a.dtype);
  const io::InputFile file(a.path);
  std::vector<std::byte> raw;
  std::vector<float> decoded;
  const auto read_run = [&](int64_t row, int64_t column, int64_t count, std::byte* to) {
    const int64_t first = column / elements, last = (column + count + elements - 1) / elements;
    raw.resize(static_cast<size_t>((last - first) * bytes));
    decoded.resize(static_cast<size_t>((last - first) * elements));
    file.read(a.offset + stored_row(row, a.rotary_head_rows) * row_bytes + first * bytes, raw.data(),
              static_cast<int64_t>(raw.size()));
    for (int64_t block = 0; block < last - first; ++block)
      decode_block(encoding, raw.data() + block * bytes, decoded.data() + block * elements);
    const float* from = decoded.data() + (column - first * elements);
    visit_dtype(a.dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i) {
        const T value = static_cast<T>(from[i]);
        std::memcpy(to + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
      }
    });
  };
  for_each_contiguous_run(a.shape, context.output_box(0), [&](int64_t first, int64_t local, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t row = (first + done) / a.row, column = (first + done) % a.row;
      const int64_t here = std::min(count - done, a.row - column);
      read_run(row, column, here, out.data() + (local + done) * size_of(a.dtype));
      done += here;
    }
  });
  context.output(0) = std::move(out);
}

}  // namespace

constinit OperatorDef gguf_slice_op = {.name = "gguf_slice",
                                       .signature = "tensor of a GGUF file, decoded",
                                       .attributes = attribute_codec<GgufAttrs>(),
                                       .infer = infer,
                                       .kernel = kernel,
                                       .klass = OperatorClass::kRead,
                                       .placement_class = PlacementClass::kAnyLayout};

namespace gguf {

Tensor File::load(const std::string& name, const Shape& shape, DType dtype, const Layout& layout,
                  const LoadOptions& options, Where where) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw KeyError("'" + path_.string() + "' has no tensor '" + name + "'");
  const Entry& entry = found->second;
  if (entry.shape.num_elements() != shape.num_elements()) {
    throw ShapeError("'" + path_.string() + "': tensor '" + name + "' has shape " + entry.shape.str() + ", asked was " +
                     shape.str());
  }
  const int64_t row = entry.shape.ndim() == 0 ? 1 : entry.shape.back();
  const GgufAttrs attributes{std::filesystem::absolute(path_).string(),
                             entry.offset,
                             static_cast<int64_t>(entry.encoding),
                             row,
                             options.rotary_head_rows,
                             shape,
                             dtype};
  const Layout layouts[] = {layout};
  return record(gguf_slice_op, attributes, {}, where, {.output_layouts = layouts});
}

}  // namespace gguf
}  // namespace dtorch
