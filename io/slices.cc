#include "io/slices.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/operators.h"
#include "io/slabs.h"
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

// What is converted is read in pieces of this many elements, so that memory is that of the result.
constexpr int64_t kElementsAtOnce = 1 << 20;

void convert(const std::byte* from, DType stored, std::byte* to, DType dtype, int64_t count) {
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
    std::byte* to = out.data() + local * size_of(a.dtype);
    if (a.stored == a.dtype) return file.read(a.offset + first * width, to, count * width);
    for (int64_t done = 0; done < count; done += kElementsAtOnce) {
      const int64_t here = std::min(kElementsAtOnce, count - done);
      raw.resize(static_cast<size_t>(here * width));
      file.read(a.offset + (first + done) * width, raw.data(), here * width);
      convert(raw.data(), a.stored, to + done * size_of(a.dtype), a.dtype, here);
    }
  });
  context.output(0) = std::move(out);
}

void hdf5_slice_kernel(KernelContext& context) {
  const auto& a = context.attributes<SliceAttrs>();
  const Box& box = context.output_box(0);
  NativeTensor out = NativeTensor::empty(box.size, a.dtype);
  if (!box.empty()) {
    io::Hdf5File file(a.path, io::Hdf5File::Mode::kRead);
    std::byte* to = out.data();
    for (const io::SlabPart& part : io::slabs_of(a.shape, box, a.file_shape)) {
      file.read_slab(a.dataset, part.slab, to);
      to += part.part.num_elements() * size_of(a.dtype);
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
