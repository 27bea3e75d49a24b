#include "io/slabs.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace dtorch::io {
namespace {

void add_slabs(const Shape& shape, const Box& box, const Shape& file_shape, std::vector<SlabPart>& out) {
  if (const auto slab = slab_of(shape, box, file_shape)) {
    out.push_back({box, *slab});
    return;
  }
  int64_t d = 0;
  while (d < box.ndim() && box.size[d] == 1) ++d;
  DTORCH_CHECK(d < box.ndim(), "shape " + shape.str() + " is shown as " + file_shape.str() +
                                   ", which merges other than neighbouring dims");
  Box row = box;
  row.size[d] = 1;
  for (int64_t i = 0; i < box.size[d]; ++i) {
    row.offset[d] = box.offset[d] + i;
    add_slabs(shape, row, file_shape, out);
  }
}

struct Cutter {
  int64_t max_elements, chunk_elements;
  const std::function<void(const Box&)>& f;

  void cut(const Box& box, int64_t dim) const {
    const int64_t elements = box.num_elements();
    if (elements <= max_elements || dim == box.ndim()) return f(box);
    const int64_t row = elements / box.size[dim];
    const int64_t chunk_rows = std::max<int64_t>(chunk_elements / row, 1);
    int64_t rows = std::max<int64_t>(max_elements / row, 1);
    if (rows > chunk_rows) rows -= rows % chunk_rows;
    for (int64_t first = 0; first < box.size[dim]; first += rows) {
      Box block = box;
      block.offset[dim] += first;
      block.size[dim] = std::min(rows, box.size[dim] - first);
      cut(block, dim + 1);
    }
  }
};

}  // namespace

Slab slab_of_box(const Box& box) {
  const Shape ones(box.ndim(), 1);
  return {box.offset, ones, box.size, ones};
}

std::optional<Slab> slab_of(const Shape& shape, const Box& box, const Shape& file_shape) {
  Slab slab;
  int64_t d = 0;
  for (int64_t file_size : file_shape) {
    const int64_t first = d;
    int64_t product = 1;
    for (; d < shape.ndim() && (product < file_size || shape[d] == 1); ++d) product *= shape[d];
    if (product != file_size) return std::nullopt;
    // The last dim of the group that is cut; those after it are whole.
    int64_t cut = d - 1, inner = 1;
    while (cut > first && box.size[cut] == shape[cut]) inner *= shape[cut--];
    // Those before it must be one run of positions.
    int64_t start = 0, count = 1, period = 1;
    for (int64_t e = first; e < cut; ++e) {
      if (count != 1 && box.size[e] != shape[e]) return std::nullopt;
      start = start * shape[e] + box.offset[e];
      count *= box.size[e];
    }
    int64_t offset = 0, block = 1;
    if (cut >= first) {
      period = shape[cut] * inner;
      offset = box.offset[cut] * inner;
      block = box.size[cut] * inner;
    }
    slab.start.push_back(start * period + offset);
    slab.stride.push_back(std::max<int64_t>(period, 1));
    slab.count.push_back(count);
    slab.block.push_back(block);
  }
  if (d != shape.ndim()) return std::nullopt;
  return slab;
}

std::vector<SlabPart> slabs_of(const Shape& shape, const Box& box, const Shape& file_shape) {
  std::vector<SlabPart> out;
  if (!box.empty()) add_slabs(shape, box, file_shape, out);
  return out;
}

void for_each_block(const Box& box, int64_t max_elements, int64_t chunk_elements,
                    const std::function<void(const Box&)>& f) {
  if (!box.empty()) Cutter{max_elements, chunk_elements, f}.cut(box, 0);
}

}  // namespace dtorch::io
