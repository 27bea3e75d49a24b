// What index_put writes where tensors aren't in the host's memory. Empty in builds without kernels.
#pragma once
#include "dtorch/kernel.h"

#if DTORCH_WITH_KERNELS
#include <ATen/core/List.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

namespace dtorch::indexing {

// For other devices than the CPU: values [offsets..., sizes...] go to the offsets of out's elements, each with a block
// of `sizes` and `strides`.
inline void put_on_device(at::Tensor& out, const at::Tensor& offsets, const at::Tensor& held,
                          const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          const at::Tensor& values, bool accumulate) {
  const int64_t nowhere = out.numel();  // one place more takes what isn't wanted here
  at::Tensor places = held.defined() ? offsets.masked_fill(held.logical_not(), nowhere) : offsets;
  for (size_t d = 0; d < sizes.size(); ++d) {
    at::Tensor steps = at::arange(sizes[d], offsets.options()).mul_(strides[d]);
    places = places.unsqueeze(-1).add(steps);
  }
  places = places.clamp_max(nowhere).reshape({-1});
  at::Tensor given = values.reshape({-1});
  if (!accumulate) {
    // Of several values for one place the last: which of them a device would write is chance.
    const auto [sorted, order] = places.sort(/*stable=*/true, 0, /*descending=*/false);
    const at::Tensor behind = at::constant_pad_nd(sorted.narrow(0, 1, sorted.numel() - 1), {0, 1}, -1);
    places = sorted.masked_fill(sorted.eq(behind), nowhere);
    given = given.index_select(0, order);
  }
  at::Tensor flat = at::cat({out.view({-1}), at::zeros({1}, out.options())});
  c10::List<std::optional<at::Tensor>> indices;
  indices.push_back(places);
  at::index_put_(flat, indices, given, accumulate);
  out.view({-1}).copy_(flat.narrow(0, 0, nowhere));
}

}  // namespace dtorch::indexing
#endif
