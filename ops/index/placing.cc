#include "ops/index/placing.h"

#include <algorithm>

#include "ops/move/combine.h"
#include "runtime/client/graph.h"

namespace dtorch::indexing {
namespace {

// The dim of moved that lies along x's dim, or along the indices', or -1.
int64_t moved_of(const std::vector<int64_t>& dims, int64_t dim) {
  const auto at = std::ranges::find(dims, dim);
  return at == dims.end() ? -1 : at - dims.begin();
}

Placement shard_or_replicate(int64_t dim) { return dim < 0 ? Replicate() : Shard(dim); }

Letters index_letters(const Dims& dims, const Letters& moved) {
  Letters letters(dims.index_ndim, kNoLetter);
  for (size_t m = 0; m < dims.index.size(); ++m) {
    if (dims.index[m] >= 0) letters[dims.index[m]] = moved[static_cast<int64_t>(m)];
  }
  return letters;
}

// x, indices..., and values unless there are none.
Row row_of(const Dims& dims, const Placement& x, const Placement& index, std::span<const Placement> values,
           const Placement& output) {
  Row row{{x}, {output}};
  row.inputs.insert(row.inputs.end(), dims.num_indices, index);
  row.inputs.insert(row.inputs.end(), values.begin(), values.end());
  return row;
}

// What the indices are on an axis: how the first that is sharded is, else Replicate.
Placement index_placement(const std::vector<Tensor>& indices, int64_t axis) {
  for (const Tensor& index : indices) {
    const Placement& placement = index.layout().placement(axis);
    if (placement.is_shard()) return placement;
  }
  return Replicate();
}

bool on_one_mesh(std::span<const Tensor> tensors) {
  return std::ranges::all_of(tensors, [&](const Tensor& tensor) { return tensor.mesh() == tensors[0].mesh(); });
}

// Placements of all operands of a put.
struct Targets {
  Placements x, index, values;
};

bool shards(const Placements& placements, int64_t dim) {
  return std::ranges::any_of(placements, [&](const Placement& p) { return p.is_shard(dim); });
}

// On an axis where x is pending: what values must be.
void place_on_pending(const Dims& dims, Put put, int64_t axis, const Placement& index, const Placement& values,
                      Targets* targets) {
  const Placement x = targets->x[axis];
  const bool additive = x.is_partial(kSum) || x.is_partial(kAvg);
  int64_t m = index.is_shard() ? moved_of(dims.index, index.dim) : values.is_shard() ? int64_t{values.dim} : -1;
  if (m >= 0 && dims.index[static_cast<size_t>(m)] < 0) m = -1;
  if (m >= 0 && put == Put::kAdd && x.is_partial(kSum)) {
    const int64_t along = dims.x[static_cast<size_t>(m)];
    if (along < 0 || !shards(targets->x, along)) {
      targets->index[axis] = Shard(dims.index[static_cast<size_t>(m)]);
      targets->values[axis] = Shard(m);
      return;
    }
  }
  const bool passes = put == Put::kAssign ? additive || values == x : put != Put::kNothing && additive;
  if (passes) {
    targets->values[axis] = x;
  } else {
    targets->x[axis] = Replicate();
  }
}

// On an axis where x is Replicate.
void place_on_replicate(const Dims& dims, Put put, int64_t axis, const Placement& index, const Placement& values,
                        bool can_add, Targets* targets) {
  const int64_t m = index.is_shard() ? moved_of(dims.index, index.dim) : values.is_shard() ? int64_t{values.dim} : -1;
  if (m >= 0) {
    const int64_t along = dims.x[static_cast<size_t>(m)], index_dim = dims.index[static_cast<size_t>(m)];
    if (along >= 0) {
      targets->x[axis] = Shard(along);
    } else if (put == Put::kAdd && can_add && index_dim >= 0) {
      targets->x[axis] = Partial();
    } else {
      return;
    }
    targets->index[axis] = shard_or_replicate(index_dim);
    targets->values[axis] = Shard(m);
  } else if (put != Put::kNothing && (values.is_partial(kSum) || values.is_partial(kAvg))) {
    targets->x[axis] = targets->values[axis] = values;
  }
}

}  // namespace

Dims aligned_dims(const Shape& x, const Shape& index, int64_t dim) {
  Dims dims{x.ndim(), index.ndim(), 1, {}, {}};
  for (int64_t d = 0; d < index.ndim(); ++d) {
    dims.x.push_back(d != dim && x[d] == index[d] ? d : -1);
    dims.index.push_back(d);
  }
  return dims;
}

Dims indexed_dims(int64_t x_ndim, const std::vector<int64_t>& indexed, size_t num_indices, int64_t index_ndim) {
  Dims dims{x_ndim, index_ndim, num_indices, {}, {}};
  const bool neighbours = indexed.empty() || indexed.back() - indexed.front() + 1 == std::ssize(indexed);
  const int64_t position = neighbours && !indexed.empty() ? indexed.front() : 0;
  const auto add_indices = [&] {
    for (int64_t b = 0; b < index_ndim; ++b) {
      dims.x.push_back(-1);
      dims.index.push_back(b);
    }
  };
  for (int64_t d = 0; d < x_ndim; ++d) {
    if (d == position) add_indices();
    if (std::ranges::binary_search(indexed, d)) continue;
    dims.x.push_back(d);
    dims.index.push_back(-1);
  }
  if (x_ndim == 0) add_indices();
  return dims;
}

Dims sliced_dims(int64_t x_ndim, int64_t dim) {
  Dims dims{x_ndim, 0, 0, {}, {}};
  for (int64_t d = 0; d < x_ndim; ++d) {
    dims.x.push_back(d == dim ? -1 : d);
    dims.index.push_back(-1);
  }
  return dims;
}

Rule pick_rule(const Dims& dims) {
  Rule rule;
  Letters moved, x(dims.x_ndim, kNoLetter);
  for (size_t m = 0; m < dims.x.size(); ++m) {
    const int16_t letter = static_cast<int16_t>(m + 1);
    moved.push_back(letter);
    if (dims.x[m] >= 0) x[dims.x[m]] = letter;
    if (dims.x[m] >= 0 || dims.index[m] >= 0) {
      rule.rows.push_back(row_of(dims, shard_or_replicate(dims.x[m]), shard_or_replicate(dims.index[m]), {},
                                 Shard(static_cast<int64_t>(m))));
    }
  }
  for (int64_t d = 0; d < dims.x_ndim; ++d) {
    if (moved_of(dims.x, d) < 0) rule.rows.push_back(row_of(dims, Shard(d), Replicate(), {}, Partial()));
  }
  for (ReduceOp kind : {kSum, kAvg, kMax, kMin}) {
    rule.rows.push_back(row_of(dims, Partial(kind), Replicate(), {}, Partial(kind)));
  }
  rule.input_letters.push_back(x);
  rule.input_letters.insert(rule.input_letters.end(), dims.num_indices, index_letters(dims, moved));
  rule.output_letters.push_back(moved);
  return rule;
}

Rule put_rule(const Dims& dims, Put put, std::span<const TensorMeta* const> inputs) {
  Rule rule;
  Letters moved, x;
  // Where parts of a dim of values are added up in a pending x, that dim doesn't pair with x's.
  std::vector<bool> added(dims.x.size(), false);
  const Layout &layout = inputs.front()->layout, &of_values = inputs.back()->layout;
  const int64_t num_axes = std::min(layout.placements().size(), of_values.placements().size());
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    const Placement& values = of_values.placement(axis);
    if (put == Put::kAdd && layout.placement(axis).is_partial(kSum) && values.is_shard())
      added[static_cast<size_t>(values.dim)] = true;
  }
  const auto add_row = [&](const Placement& of_x, const Placement& of_index, const Placement& of_values) {
    rule.rows.push_back(row_of(dims, of_x, of_index, {&of_values, 1}, of_x));
  };
  for (int64_t d = 0; d < dims.x_ndim; ++d) {
    x.push_back(static_cast<int16_t>(d + 1));
    const int64_t m = moved_of(dims.x, d);
    if (m >= 0 && added[static_cast<size_t>(m)]) continue;
    add_row(Shard(d), m < 0 ? Replicate() : shard_or_replicate(dims.index[static_cast<size_t>(m)]),
            shard_or_replicate(m));
  }
  for (size_t m = 0; m < dims.x.size(); ++m) {
    const int64_t own = dims.x_ndim + static_cast<int64_t>(m);
    moved.push_back(static_cast<int16_t>((dims.x[m] >= 0 && !added[m] ? dims.x[m] : own) + 1));
    if (put == Put::kAdd && dims.index[m] >= 0)
      add_row(Partial(), Shard(dims.index[m]), Shard(static_cast<int64_t>(m)));
  }
  for (ReduceOp kind : {kSum, kAvg, kMax, kMin}) {
    const bool passes = put == Put::kAssign || (put != Put::kNothing && (kind == kSum || kind == kAvg));
    if (passes) add_row(Partial(kind), Replicate(), Partial(kind));
  }
  rule.input_letters.push_back(x);
  rule.input_letters.insert(rule.input_letters.end(), dims.num_indices, index_letters(dims, moved));
  rule.input_letters.push_back(moved);
  rule.output_letters.push_back(x);
  return rule;
}

void place(const char* op, std::span<Tensor> tensors, std::span<const Placements> targets, const Where& where) {
  AxisList order;
  for (const Tensor& tensor : tensors) {
    for (int8_t axis : tensor.layout().shard_order()) {
      if (std::ranges::find(order, axis) == order.end()) order.push_back(axis);
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = tensors[i];
    const Layout layout(tensor.mesh(), targets[i], tensor.ndim(), order);
    if (layout == tensor.layout()) continue;
    if (layout.placements() != tensor.placements()) {
      require_implicit_redistribution(op, tensor, layout, where);
    } else if (!implicit_redistribution_allowed()) {
      continue;  // only the order differs: the rule refuses it
    }
    tensor = tensor.redistribute(layout, where);
  }
}

Placed place_pick(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Dims& dims,
                  const Where& where) {
  Placed placed{{x}, x.placements()};
  placed.inputs.insert(placed.inputs.end(), indices.begin(), indices.end());
  if (!on_one_mesh(placed.inputs)) return placed;  // which record() refuses
  Placements of_x = x.placements(), of_index(of_x.size(), Replicate());
  // Zeros where a device doesn't hold the element are the identity of sums only.
  const bool adds =
      std::ranges::any_of(of_x, [&](const Placement& p) { return p.is_shard() && moved_of(dims.x, p.dim) < 0; });
  if (adds) {
    Placements whole = of_x;
    for (Placement& p : whole) {
      if (p.is_shard() && moved_of(dims.x, p.dim) < 0) p = Replicate();
    }
    require_implicit_redistribution(op, x, x.layout().with_placements(whole, x.ndim()), where);
  }
  for (int64_t axis = 0; axis < of_x.size(); ++axis) {
    Placement& p = of_x[axis];
    Placement& result = placed.result[axis];
    const Placement index = index_placement(indices, axis);
    const int64_t index_moved = index.is_shard() ? moved_of(dims.index, index.dim) : -1;
    if (adds && (p.is_partial(kMax) || p.is_partial(kMin))) p = result = Replicate();
    if (p.is_shard()) {
      const int64_t m = moved_of(dims.x, p.dim);
      if (m >= 0) of_index[axis] = shard_or_replicate(dims.index[static_cast<size_t>(m)]);
      result = shard_or_replicate(m >= 0 ? m : index_moved);
    } else if (p.is_replicate() && index.is_shard()) {
      p = shard_or_replicate(dims.x[static_cast<size_t>(index_moved)]);
      of_index[axis] = index;
      result = Shard(index_moved);
    }
  }
  std::vector<Placements> targets(placed.inputs.size(), of_index);
  targets[0] = of_x;
  place(op, placed.inputs, targets, where);
  return placed;
}

Placed place_put(const char* op, const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                 const Dims& dims, Put put, const Where& where) {
  Placed placed{{x}, x.placements()};
  placed.inputs.insert(placed.inputs.end(), indices.begin(), indices.end());
  placed.inputs.push_back(values);
  if (!on_one_mesh(placed.inputs)) return placed;  // which record() refuses
  const Placements replicate(x.placements().size(), Replicate());
  Targets targets{x.placements(), replicate, replicate};
  const int64_t num_axes = replicate.size();
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    const Placement index = index_placement(indices, axis), of_values = values.layout().placement(axis);
    const Placement of_x = targets.x[axis];
    if (of_x.is_replicate()) {
      place_on_replicate(dims, put, axis, index, of_values, x.dtype() != kBool, &targets);
    } else if (of_x.is_shard()) {
      const int64_t m = moved_of(dims.x, of_x.dim);
      if (m < 0) continue;
      targets.values[axis] = Shard(m);
      targets.index[axis] = shard_or_replicate(dims.index[static_cast<size_t>(m)]);
    }
  }
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    if (!x.layout().placement(axis).is_partial()) continue;
    place_on_pending(dims, put, axis, index_placement(indices, axis), values.layout().placement(axis), &targets);
  }
  // What values made pending stays so; what only the split of the work made pending is reduced.
  for (int64_t axis = 0; axis < num_axes; ++axis) {
    const bool by_split = x.layout().placement(axis).is_replicate() && !values.layout().placement(axis).is_partial();
    placed.result[axis] = by_split && targets.x[axis].is_partial() ? Replicate() : targets.x[axis];
  }
  std::vector<Placements> all(placed.inputs.size(), targets.index);
  all.front() = targets.x;
  all.back() = targets.values;
  place(op, placed.inputs, all, where);
  return placed;
}

Tensor finish(const Tensor& output, const Placements& result, const Where& where) {
  return result == output.placements()
             ? output
             : output.redistribute(output.layout().with_placements(result, output.ndim()), where);
}

}  // namespace dtorch::indexing
