// The redistributes that an error suggests: a search over target placements and orders, every candidate proved by
// matching again.
#include <algorithm>
#include <optional>
#include <tuple>

#include "mesh/match_internal.h"
#include "mesh/redistribute_plan.h"

namespace dtorch::internal {
namespace {

using Metas = std::span<const TensorMeta* const>;

struct Price {
  int64_t bytes = 0;
  int64_t changed_axes = 0;
  int64_t partials = 0;  // of equally cheap targets one without Partial is the better advice
  friend auto operator<=>(const Price&, const Price&) = default;
};

Price price_of(const TensorMeta& meta, const Layout& target) {
  Price price{redistribute_bytes(meta.global_shape, meta.dtype, meta.layout, target), 0, 0};
  for (int64_t axis = 0; axis < target.mesh().num_axes(); ++axis) {
    if (target.placement(axis) == meta.layout.placement(axis)) continue;
    ++price.changed_axes;
    price.partials += target.placement(axis).is_partial() ? 1 : 0;
  }
  return price;
}

class FixSearch {
 public:
  FixSearch(const Rule& rule, const std::vector<Row>& rows, Metas inputs, std::span<const int64_t> output_ndims,
            ConversionPolicy policy, int64_t failed_axis)
      : rule_(rule),
        rows_(rows),
        inputs_(inputs),
        output_ndims_(output_ndims),
        policy_(policy),
        failed_axis_(failed_axis) {}

  std::vector<Conversion> run() {
    for (size_t i = 0; i < inputs_.size(); ++i) search_single(i);
    if (best_) return {*best_};
    return several();
  }

 private:
  bool legal_after(const std::vector<Conversion>& fix) const {
    std::vector<TensorMeta> metas;
    metas.reserve(inputs_.size());
    for (const TensorMeta* input : inputs_) metas.push_back(*input);
    for (const Conversion& c : fix) metas[static_cast<size_t>(c.input)].layout = c.layout;
    std::vector<const TensorMeta*> pointers;
    for (const TensorMeta& meta : metas) pointers.push_back(&meta);
    return match_rows(rule_, rows_, pointers, output_ndims_, policy_).match.has_value();
  }

  const DeviceMesh& mesh() const { return inputs_[0]->layout.mesh(); }

  // Placements that some row has for input i, Replicate first.
  std::vector<Placement> options_of(size_t i) const {
    std::vector<Placement> options{Replicate()};
    for (const Row& row : rows_) {
      const Placement& p = row.inputs[i];
      if (p.is_shard() && p.dim >= inputs_[i]->global_shape.ndim()) continue;
      if (std::find(options.begin(), options.end(), p) == options.end()) options.push_back(p);
    }
    return options;
  }

  // `placements` for input i in the orders worth trying: added shards innermost, mesh order, and the other inputs'
  // orders.
  std::vector<Layout> orders_of(size_t i, const Placements& placements) const {
    const int64_t ndim = inputs_[i]->global_shape.ndim();
    std::vector<Layout> layouts{inputs_[i]->layout.with_placements(placements, ndim), Layout(mesh(), placements, ndim)};
    for (const TensorMeta* other : inputs_) layouts.emplace_back(mesh(), placements, ndim, other->layout.shard_order());
    return layouts;
  }

  void search_single(size_t i) {
    const std::vector<Placement> options = options_of(i);
    std::vector<int64_t> axes;
    int64_t combinations = 1;
    constexpr int64_t kMaxCombinations = 1024;
    for (int64_t axis = 0; axis < mesh().num_axes(); ++axis) {
      if (mesh().shape()[axis] == 1) continue;
      axes.push_back(axis);
      combinations = std::min(kMaxCombinations + 1, combinations * static_cast<int64_t>(options.size()));
    }
    if (combinations > kMaxCombinations && failed_axis_ >= 0) {
      axes = {failed_axis_};
      combinations = static_cast<int64_t>(options.size());
    }
    combinations = std::min(combinations, kMaxCombinations);
    for (int64_t number = 0; number < combinations; ++number) {
      Placements placements = inputs_[i]->layout.placements();
      int64_t rest = number;
      for (int64_t axis : axes) {
        placements[axis] = options[static_cast<size_t>(rest % static_cast<int64_t>(options.size()))];
        rest /= static_cast<int64_t>(options.size());
      }
      for (const Layout& layout : orders_of(i, placements)) consider_single(i, layout);
    }
  }

  void consider_single(size_t i, const Layout& layout) {
    if (layout == inputs_[i]->layout) return;
    const Conversion conversion{static_cast<int32_t>(i), layout};
    if (!legal_after({conversion})) return;  // first, since a price takes time for each device
    const Price price = price_of(*inputs_[i], layout);
    if (best_ && price >= best_price_) return;
    best_ = conversion;
    best_price_ = price;
  }

  // For each axis the row that is cheapest to reach, all inputs split in one order of axes.
  std::vector<Conversion> several() const {
    std::vector<Placements> targets;
    for (const TensorMeta* input : inputs_) targets.push_back(input->layout.placements());
    for (int64_t axis = 0; axis < mesh().num_axes(); ++axis) {
      if (mesh().shape()[axis] == 1) continue;
      const Row* best_row = nullptr;
      Price best_price;
      for (const Row& row : rows_) {
        const std::optional<Price> price = price_of_row(row, axis);
        if (!price || (best_row && *price >= best_price)) continue;
        best_row = &row;
        best_price = *price;
      }
      for (size_t i = 0; i < inputs_.size(); ++i) targets[i][axis] = best_row->inputs[i];
    }
    std::optional<std::vector<Conversion>> best;
    int64_t best_bytes = 0;
    for (size_t reference = 0; reference <= inputs_.size(); ++reference) {
      AxisList order;
      if (reference < inputs_.size()) {
        const TensorMeta& meta = *inputs_[reference];
        order = meta.layout.with_placements(targets[reference], meta.global_shape.ndim()).shard_order();
      }
      std::vector<Conversion> fix;
      int64_t bytes = 0;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const TensorMeta& meta = *inputs_[i];
        const Layout layout(mesh(), targets[i], meta.global_shape.ndim(), order);
        if (layout == meta.layout) continue;
        fix.push_back({static_cast<int32_t>(i), layout});
        bytes += redistribute_bytes(meta.global_shape, meta.dtype, meta.layout, layout);
      }
      if ((best && bytes >= best_bytes) || !legal_after(fix)) continue;
      best = fix;
      best_bytes = bytes;
    }
    return without_needless(best ? *best : replicate_all());
  }

  std::optional<Price> price_of_row(const Row& row, int64_t axis) const {
    Price sum;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const TensorMeta& meta = *inputs_[i];
      if (row.inputs[i].is_shard() && row.inputs[i].dim >= meta.global_shape.ndim()) return std::nullopt;
      Placements placements = meta.layout.placements();
      placements[axis] = row.inputs[i];
      const Price price = price_of(meta, meta.layout.with_placements(placements, meta.global_shape.ndim()));
      sum.bytes += price.bytes;
      sum.changed_axes += price.changed_axes;
      sum.partials += price.partials;
    }
    return sum;
  }

  std::vector<Conversion> replicate_all() const {
    std::vector<Conversion> fix;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i]->layout.is_replicated()) fix.push_back({static_cast<int32_t>(i), Layout::replicated(mesh())});
    }
    return fix;
  }

  // Leaves out what the match converts by itself.
  std::vector<Conversion> without_needless(std::vector<Conversion> fix) const {
    for (size_t k = fix.size(); k-- > 0;) {
      std::vector<Conversion> shorter = fix;
      shorter.erase(shorter.begin() + static_cast<int64_t>(k));
      if (legal_after(shorter)) fix = shorter;
    }
    return fix;
  }

  const Rule& rule_;
  const std::vector<Row>& rows_;
  Metas inputs_;
  std::span<const int64_t> output_ndims_;
  ConversionPolicy policy_;
  int64_t failed_axis_;
  std::optional<Conversion> best_;
  Price best_price_;
};

}  // namespace

std::vector<Conversion> cheapest_fix(const Rule& rule, const std::vector<Row>& rows, Metas inputs,
                                     std::span<const int64_t> output_ndims, ConversionPolicy policy,
                                     int64_t failed_axis) {
  return FixSearch(rule, rows, inputs, output_ndims, policy, failed_axis).run();
}

}  // namespace dtorch::internal
