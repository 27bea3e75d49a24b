// Where the elements of a box lie in a file that shows its tensor in another shape: neighbouring dims merged, as
// [H, hd, D] is stored as [H * hd, D] (D9). Pure functions.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "mesh/shape.h"

namespace dtorch::io {

// Of each dim, `count` blocks of `block` elements, `stride` apart, from `start` on.
struct Slab {
  Shape start, stride, count, block;
  int64_t num_elements() const { return count.num_elements() * block.num_elements(); }
};
Slab slab_of_box(const Box& box);

// The elements of a box of `shape` in `file_shape`, which merges neighbouring dims; nullopt when they aren't regular
// enough for one Slab.
std::optional<Slab> slab_of(const Shape& shape, const Box& box, const Shape& file_shape);

struct SlabPart {
  Box part;  // of the box, in coordinates of the whole tensor
  Slab slab;
};
// The same in as many parts as it takes: runs of the box's elements, one after the other in row-major order.
std::vector<SlabPart> slabs_of(const Shape& shape, const Box& box, const Shape& file_shape);

// Calls f with parts of a box, of at most `max_elements` each, that follow one another in row-major order. Cuts where
// whole chunks of `chunk_elements` end, as far as it can.
void for_each_block(const Box& box, int64_t max_elements, int64_t chunk_elements,
                    const std::function<void(const Box&)>& f);

}  // namespace dtorch::io
