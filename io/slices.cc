#include "io/slices.h"

#include <cstring>
#include <optional>
#include <vector>

#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/operators.h"
#include "runtime/client/record.h"

namespace dtorch {
namespace {

struct SliceAttrs {
  std::string path, dataset;
  int64_t offset = 0;
  Shape file_shape, shape;
  DType stored = kFloat32, dtype = kFloat32;
  template <class V>
  void fields(V& v) {
    v("path", path);
    v("dataset", dataset);
    v("offset", offset);
    v("file_shape", file_shape);
    v("shape", shape);
    v("stored", stored);
    v("dtype", dtype);
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& a = context.attributes<SliceAttrs>();
  return {{a.shape, a.dtype}};
}

void convert(const std::byte* from, DType stored, std::byte* to, DType dtype, int64_t count) {
  if (stored == dtype) {
    std::memcpy(to, from, static_cast<size_t>(count * size_of(dtype)));
    return;
  }
  visit_dtype(stored, [&]<class S>() {
    visit_dtype(dtype, [&]<class T>() {
      for (int64_t i = 0; i < count; ++i) {
        S value;
        std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(S), sizeof(S));
        const T converted = static_cast<T>(value);
        std::memcpy(to + static_cast<size_t>(i) * sizeof(T), &converted, sizeof(T));
      }
    });
  });
}

void file_slice_kernel(KernelContext& context) {
  const auto& a = context.attributes<SliceAttrs>();
  NativeTensor out = NativeTensor::empty(context.output_box(0).size, a.dtype);
  io::InputFile file(a.path);
  const int64_t width = size_of(a.stored);
  std::vector<std::byte> raw;
  for_each_contiguous_run(a.shape, context.output_box(0), [&](int64_t first, int64_t local, int64_t count) {
    raw.resize(static_cast<size_t>(count * width));
    file.read(a.offset + first * width, raw.data(), count * width);
    convert(raw.data(), a.stored, out.data() + local * size_of(a.dtype), a.dtype, count);
  });
  context.output(0) = std::move(out);
}

// The box of the file's shape that holds the same elements as `box` of `shape`, where the file merges neighbouring
// dims. The box is cut along `shape`'s dims; empty optional when the elements aren't a box there.
std::optional<Box> merged_box(const Shape& shape, const Box& box, const Shape& file_shape) {
  Box out;
  int64_t d = 0;
  for (int64_t file_size : file_shape) {
    int64_t product = 1, offset = 0, size = 1;
    bool whole_inside = true;  // dims after the first of a group are whole, or everything before them is one position
    while (d < shape.ndim() && (product < file_size || (product == file_size && shape[d] == 1))) {
      if (size != 1 && box.size[d] != shape[d]) whole_inside = false;
      product *= shape[d];
      offset = offset * shape[d] + box.offset[d];
      size *= box.size[d];
      ++d;
    }
    if (product != file_size || !whole_inside) return std::nullopt;
    out.offset.push_back(offset);
    out.size.push_back(size);
  }
  if (d != shape.ndim()) return std::nullopt;
  return out;
}

void hdf5_slice_kernel(KernelContext& context) {
  const auto& a = context.attributes<SliceAttrs>();
  const Box& box = context.output_box(0);
  NativeTensor out = NativeTensor::empty(box.size, a.dtype);
  if (!box.empty()) {
    io::Hdf5File file(a.path, io::Hdf5File::Mode::kRead);
    if (const auto there = merged_box(a.shape, box, a.file_shape)) {
      file.read_box(a.dataset, *there, out.data());
    } else {
      std::vector<std::byte> all(static_cast<size_t>(a.shape.num_elements() * size_of(a.dtype)));
      file.read_box(a.dataset, whole(a.file_shape), all.data());
      for_each_contiguous_run(a.shape, box, [&](int64_t first, int64_t local, int64_t count) {
        convert(all.data() + first * size_of(a.dtype), a.dtype, out.data() + local * size_of(a.dtype), a.dtype, count);
      });
    }
  }
  context.output(0) = std::move(out);
}

}  // namespace

constinit OperatorDef file_slice_op = {.name = "file_slice",
                                       .signature = "tensor stored row-major in a file",
                                       .attributes = attribute_codec<SliceAttrs>(),
                                       .infer = infer,
                                       .kernel = file_slice_kernel,
                                       .klass = OperatorClass::kRead,
                                       .placement_class = PlacementClass::kAnyLayout};
constinit OperatorDef hdf5_slice_op = {.name = "hdf5_slice",
                                       .signature = "data set of an HDF5 file",
                                       .attributes = attribute_codec<SliceAttrs>(),
                                       .infer = infer,
                                       .kernel = hdf5_slice_kernel,
                                       .klass = OperatorClass::kRead,
                                       .placement_class = PlacementClass::kAnyLayout};

namespace io {

Tensor file_slice(const std::filesystem::path& path, int64_t offset, const Shape& shape, DType stored, DType dtype,
                  const Layout& layout, Where where) {
  const SliceAttrs attributes{std::filesystem::absolute(path).string(), "", offset, shape, shape, stored, dtype};
  const Layout layouts[] = {layout};
  return record(file_slice_op, attributes, {}, where, {.output_layouts = layouts});
}

Tensor hdf5_slice(const std::filesystem::path& path, const std::string& dataset, const Shape& file_shape,
                  const Shape& shape, DType dtype, const Layout& layout, Where where) {
  const SliceAttrs attributes{std::filesystem::absolute(path).string(), dataset, 0, file_shape, shape, dtype, dtype};
  const Layout layouts[] = {layout};
  return record(hdf5_slice_op, attributes, {}, where, {.output_layouts = layouts});
}

}  // namespace io
}  // namespace dtorch
