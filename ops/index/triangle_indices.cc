// tril_indices(row, col, offset), triu_indices: [2, count], rows and columns of a triangle of a [row, col] matrix, row
// by row. Created like arange: every device makes its own part, on any layout.
#include <algorithm>

#include "ops/create/operators.h"
#include "ops/index/operators.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace {

using namespace create;

struct TriangleAttrs : CreateAttrs {
  int64_t row = 0, col = 0, offset = 0;
  bool upper = false;
  template <class V>
  void fields(V& v) {
    CreateAttrs::fields(v);
    v("row", row);
    v("col", col);
    v("offset", offset);
    v("upper", upper);
  }
  // Columns [first, end) of row i.
  Span1 columns(int64_t i) const {
    const int64_t diagonal = upper ? i + offset : i + offset + 1;  // of the upper's first, the lower's end
    const int64_t at = std::clamp<int64_t>(diagonal, 0, col);
    return upper ? Span1{at, col - at} : Span1{0, at};
  }
};

std::vector<OutputMeta> infer(const InferContext& context) {
  const auto& attributes = context.attributes<TriangleAttrs>();
  return {{attributes.shape, attributes.dtype}};
}

void kernel(KernelContext& context) {
  const auto& attributes = context.attributes<TriangleAttrs>();
  bool done = false;
  NativeTensor part = make_part(context, &done);
  const Box& box = context.output_box(0);
  if (!done && !box.empty()) {
    visit_dtype(part.dtype(), [&]<class T>() {
      T* values = reinterpret_cast<T*>(part.data());
      const int64_t width = box.size[1], begin = box.offset[1], end = begin + width;
      int64_t number = 0;  // of the row's first element
      for (int64_t i = 0; i < attributes.row && number < end; ++i) {
        const Span1 columns = attributes.columns(i);
        const int64_t from = std::max(begin, number), to = std::min(end, number + columns.size);
        for (int64_t k = from; k < to; ++k) {
          for (int64_t r = 0; r < box.size[0]; ++r) {
            const int64_t value = box.offset[0] + r == 0 ? i : columns.offset + k - number;
            values[r * width + k - begin] = static_cast<T>(value);
          }
        }
        number += columns.size;
      }
    });
  }
  context.output(0) = std::move(part);
}

Tensor triangle(const char* op, int64_t row, int64_t col, int64_t offset, bool upper, const TensorOptions& options,
                const Where& where) {
  if (row < 0 || col < 0) {
    throw at_line(ShapeError(std::string("[") + op + "] of a matrix of " + std::to_string(row) + " x " +
                             std::to_string(col) + "; sizes can't be negative"),
                  where);
  }
  TriangleAttrs attributes;
  attributes.row = row;
  attributes.col = col;
  attributes.offset = std::clamp(offset, -row, col);
  attributes.upper = upper;
  int64_t count = 0;
  for (int64_t i = 0; i < row; ++i) count += attributes.columns(i).size;
  attributes.shape = {2, count};
  attributes.dtype = options.dtype.given ? options.dtype.value : kInt64;
  const Layout layout = options.layout(2, where);
  return record(triangle_indices_op, attributes, {}, where, {.output_layouts = {&layout, 1}});
}

std::vector<Sample> lower_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [](const std::vector<Tensor>&) {
                 return std::vector<Tensor>{tril_indices(5, 3), tril_indices(3, 7, -1)};
               }},
          {.name = "empty", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{tril_indices(0, 3), tril_indices(1, 1, -2)};
           }}};
}
std::vector<Sample> upper_samples() {
  return {{.name = "uneven",
           .inputs = {},
           .call =
               [](const std::vector<Tensor>&) {
                 return std::vector<Tensor>{triu_indices(5, 3), triu_indices(3, 7, 2)};
               }},
          {.name = "empty", .inputs = {}, .call = [](const std::vector<Tensor>&) {
             return std::vector<Tensor>{triu_indices(0, 3), triu_indices(1, 1, 2)};
           }}};
}

}  // namespace

constinit OperatorDef triangle_indices_op = {
    .name = "triangle_indices",
    .signature = "tril_indices/triu_indices(row, col, offset, upper) -> Tensor",
    .attributes = attribute_codec<TriangleAttrs>(),
    .infer = infer,
    .kernel = kernel,
    .placement_class = PlacementClass::kAnyLayout,
    .saved_inputs = 0,
};
// Of one operator.
constinit OperatorDef tril_indices_op = {.name = "tril_indices",
                                         .signature = "tril_indices(row, col, offset, options) -> Tensor",
                                         .samples = lower_samples,
                                         .placement_class = PlacementClass::kAnyLayout};
constinit OperatorDef triu_indices_op = {.name = "triu_indices",
                                         .signature = "triu_indices(row, col, offset, options) -> Tensor",
                                         .samples = upper_samples,
                                         .placement_class = PlacementClass::kAnyLayout};

Tensor tril_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& options, Where where) {
  return triangle("tril_indices", row, col, offset, /*upper=*/false, options, where);
}
Tensor triu_indices(int64_t row, int64_t col, int64_t offset, const TensorOptions& options, Where where) {
  return triangle("triu_indices", row, col, offset, /*upper=*/true, options, where);
}

}  // namespace dtorch
