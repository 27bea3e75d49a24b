// Proposals that only move elements: views, cuts, joins.
#include <algorithm>
#include <numeric>

#include "tests/random/builder.h"

namespace dtorch::test {

std::optional<Proposal> rearrangement(Builder& b);

namespace {

using Tensors = std::vector<Tensor>;
using Maybe = std::optional<Proposal>;

std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text = "{";
  for (int64_t n : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "}";
}

Proposal moving(std::string text, std::vector<int> inputs, Call run) {
  return {.text = std::move(text), .inputs = std::move(inputs), .run = std::move(run), .keeps_exact = true};
}

// Merges two neighbouring dims, or splits one in two.
Maybe reshaped(Builder& b, const Known& x) {
  std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
  const auto at = static_cast<size_t>(b.below(shape.size()));
  if (at + 1 < shape.size() && b.chance(0.5)) {
    shape[at] *= shape[at + 1];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  } else {
    int64_t factor = b.between(2, 3);
    if (shape[at] % factor != 0) factor = shape[at];
    if (factor == 0) return {};
    shape[at] /= factor;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at) + (b.chance(0.5) ? 0 : 1), factor);
  }
  return moving("reshape($0, " + text_of(shape) + ")", {x.number},
                [shape](const Tensors& in) { return Tensors{reshape(in[0], shape)}; });
}

Maybe permuted(Builder& b, const Known& x) {
  std::vector<int64_t> dims(static_cast<size_t>(x.ndim()));
  std::iota(dims.begin(), dims.end(), int64_t{0});
  for (size_t i = dims.size(); i > 1; --i) std::swap(dims[i - 1], dims[b.below(i)]);
  return moving("permute($0, " + text_of(dims) + ")", {x.number},
                [dims](const Tensors& in) { return Tensors{permute(in[0], dims)}; });
}

Maybe one_dim_more_or_less(Builder& b, const Known& x) {
  const int64_t dim = b.between(0, x.ndim() - 1);
  const std::string d = std::to_string(dim);
  switch (b.below(3)) {
    case 0:
      return moving("unsqueeze($0, " + d + ")", {x.number},
                    [dim](const Tensors& in) { return Tensors{unsqueeze(in[0], dim)}; });
    case 1:
      return moving("squeeze($0)", {x.number}, [](const Tensors& in) { return Tensors{squeeze(in[0])}; });
    default: {
      std::vector<int64_t> shape(x.shape().begin(), x.shape().end());
      for (int64_t& size : shape) {
        if (size == 1) size = 3;
      }
      if (b.chance(0.5)) shape.insert(shape.begin(), 2);
      return moving("expand($0, " + text_of(shape) + ")", {x.number},
                    [shape](const Tensors& in) { return Tensors{expand(in[0], shape)}; });
    }
  }
}

Maybe cut(Builder& b, const Known& x) {
  const int64_t dim = b.between(0, x.ndim() - 1), size = x.shape()[dim];
  if (size == 0) return {};
  const std::string d = std::to_string(dim);
  switch (b.below(3)) {
    case 0: {
      const int64_t start = b.between(0, size - 1), end = b.between(start, size), step = b.between(1, 2);
      return moving("slice($0, " + d + ", " + std::to_string(start) + ", " + std::to_string(end) + ", " +
                        std::to_string(step) + ")",
                    {x.number}, [=](const Tensors& in) { return Tensors{slice(in[0], dim, start, end, step)}; });
    }
    case 1: {
      const int64_t index = b.between(0, size - 1);
      return moving("select($0, " + d + ", " + std::to_string(index) + ")", {x.number},
                    [=](const Tensors& in) { return Tensors{select(in[0], dim, index)}; });
    }
    default:
      return moving("chunk($0, 2, " + d + ")", {x.number}, [=](const Tensors& in) { return chunk(in[0], 2, dim); });
  }
}

Maybe joined(Builder& b, const Known& x) {
  const int64_t dim = b.between(0, x.ndim() - 1);
  const Known* same = b.any([&](const Known& y) { return y.shape() == x.shape() && y.dtype() == x.dtype(); });
  const int other = same && same->number != x.number ? same->number : b.leaf({x.shape(), x.dtype()});
  const std::string rest = "({$0, $1}, " + std::to_string(dim) + ")";
  if (b.chance(0.3))
    return moving("stack" + rest, {x.number, other}, [dim](const Tensors& in) { return Tensors{stack(in, dim)}; });
  return moving("cat" + rest, {x.number, other}, [dim](const Tensors& in) { return Tensors{cat(in, dim)}; });
}

}  // namespace

std::optional<Proposal> rearrangement(Builder& b) {
  const Known* found = b.any([](const Known& known) {
    return known.ndim() >= 1 && (known.dtype() == kFloat64 || known.dtype() == kInt64 || known.dtype() == kBool);
  });
  if (!found) return {};
  const Known x = *found;
  switch (b.below(5)) {
    case 0:
      return reshaped(b, x);
    case 1:
      return permuted(b, x);
    case 2:
      return one_dim_more_or_less(b, x);
    case 3:
      return cut(b, x);
    default:
      return x.dtype() == kBool ? Maybe() : joined(b, x);
  }
}

}  // namespace dtorch::test
