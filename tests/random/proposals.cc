// What random programs call. A proposal takes values that are there, or makes leaves that fit them; whether the call is
// legal for their shapes the builder finds out. Calls with jumps (relu, maximum, comparisons, positions) take only
// values that are the same bits on every layout, since a rounding error would become a whole one.
#include <algorithm>

#include "tests/random/builder.h"

namespace dtorch::test {
namespace {

using Tensors = std::vector<Tensor>;
using Maybe = std::optional<Proposal>;

std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text = "{";
  for (int64_t n : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "}";
}

// --- one operand
struct Smooth {
  const char* name;
  Tensor (*function)(const Tensor&, Where);
  double most, gain;
};
Tensor plain_gelu(const Tensor& x, Where where) { return gelu(x, "none", where); }
constexpr Smooth kSmooth[] = {{"tanh", tanh, 30, 1}, {"sigmoid", sigmoid, 30, 1}, {"sin", sin, 30, 1},
                              {"cos", cos, 30, 1},   {"neg", neg, 1e3, 1},        {"square", square, 8, 16},
                              {"exp", exp, 3, 21},   {"silu", silu, 30, 2},       {"gelu", plain_gelu, 30, 2},
                              {"erf", erf, 30, 2}};
Maybe smooth(Builder& b) {
  const Smooth& one = kSmooth[b.below(std::size(kSmooth))];
  const Known* x = b.any_real(one.most);
  if (!x) return {};
  return Proposal{.text = std::string(one.name) + "($0)",
                  .inputs = {x->number},
                  .run = [f = one.function](const Tensors& in) { return Tensors{f(in[0], Where::current())}; },
                  .gain = one.gain};
}

struct Jumping {
  const char* text;
  Tensor (*function)(const Tensor&);
};
constexpr Jumping kJumping[] = {{"relu($0)", [](const Tensor& x) { return relu(x); }},
                                {"abs($0)", [](const Tensor& x) { return abs(x); }},
                                {"clamp($0, -0.5, 1.25)", [](const Tensor& x) { return clamp(x, -0.5, 1.25); }},
                                {"contiguous($0)", [](const Tensor& x) { return contiguous(x); }},
                                {"minimum or maximum", nullptr}};
Maybe jumping(Builder& b) {
  const Known* x = b.any_exact_real();
  if (!x) return {};
  const Jumping& one = kJumping[b.below(std::size(kJumping))];
  if (one.function != nullptr) {
    return Proposal{.text = one.text,
                    .inputs = {x->number},
                    .run = [f = one.function](const Tensors& in) { return Tensors{f(in[0])}; },
                    .keeps_exact = true};
  }
  const bool least = b.chance(0.5);
  const int number = x->number, other = b.leaf({x->shape()});
  return Proposal{
      .text = least ? "minimum($0, $1)" : "maximum($0, $1)",
      .inputs = {number, other},
      .run = [least](const Tensors& in) { return Tensors{least ? minimum(in[0], in[1]) : maximum(in[0], in[1])}; },
      .keeps_exact = true};
}

Maybe with_number(Builder& b) {
  const Known* x = b.any_real();
  if (!x) return {};
  const double c = static_cast<double>(b.between(-12, 12)) / 8;
  const std::string number = std::to_string(c);
  switch (b.below(4)) {
    case 0:
      return Proposal{"$0 + " + number, {x->number}, [c](const Tensors& in) { return Tensors{in[0] + c}; }, 1};
    case 1:
      return Proposal{number + " - $0", {x->number}, [c](const Tensors& in) { return Tensors{c - in[0]}; }, 1};
    case 2:
      return Proposal{"$0 * " + number, {x->number}, [c](const Tensors& in) { return Tensors{in[0] * c}; }, 2};
    default:
      return Proposal{
          "dropout($0, 0.25)", {x->number}, [](const Tensors& in) { return Tensors{dropout(in[0], 0.25)}; }, 2};
  }
}

// --- two operands
// A value that broadcasts with x: one that is there, or a leaf of its last dims, some of them 1.
int partner_of(Builder& b, const Known& x, double most) {
  const Shape shape = x.shape();
  const Known* same = b.any([&](const Known& y) { return y.shape() == shape && b.is_real(y, most); });
  if (same && b.chance(0.7)) return same->number;
  const int64_t dropped = shape.empty() ? 0 : b.between(0, std::min<int64_t>(shape.ndim() - 1, 1));
  Shape own(shape.begin() + (b.chance(0.5) ? dropped : 0), shape.end());
  for (int64_t& size : own) {
    if (b.chance(0.15)) size = 1;
  }
  return b.leaf({own});
}
Maybe two_operands(Builder& b) {
  const Known* x = b.any_real();
  if (!x) return {};
  const int a = x->number;
  const double largest = x->largest;
  const Known copy = *x;
  switch (b.below(5)) {
    case 0:
    case 1: {
      const int other = partner_of(b, copy, 30);
      return Proposal{"$0 + $1", {a, other}, [](const Tensors& in) { return Tensors{in[0] + in[1]}; }, 1};
    }
    case 2: {
      const int other = partner_of(b, copy, 30);
      return Proposal{"$0 - $1", {other, a}, [](const Tensors& in) { return Tensors{in[0] - in[1]}; }, 1};
    }
    case 3: {
      const int other = partner_of(b, copy, 8);
      return Proposal{
          "$0 * $1", {a, other}, [](const Tensors& in) { return Tensors{in[0] * in[1]}; }, std::max(largest, 8.0)};
    }
    default: {
      const int divisor = b.leaf({.shape = copy.shape(), .fill = SampleFill::kPositive});
      return Proposal{
          "$0 / $1", {a, divisor}, [](const Tensors& in) { return Tensors{in[0] / in[1]}; }, 10 + 100 * largest};
    }
  }
}
Maybe choose(Builder& b) {
  const Known* x = b.any_real();
  if (!x) return {};
  const Known copy = *x;
  const int other = partner_of(b, copy, 30);
  const int condition = b.leaf({copy.shape(), kBool, SampleFill::kBool});
  return Proposal{.text = "where($0, $1, $2)",
                  .inputs = {condition, copy.number, other},
                  .run = [](const Tensors& in) { return Tensors{where(in[0], in[1], in[2])}; },
                  .keeps_exact = true};
}

// --- products
Maybe product(Builder& b) {
  const Known* x = b.any([&](const Known& known) { return known.ndim() >= 2 && b.is_real(known, 8); });
  if (!x) return {};
  const Known copy = *x;
  const int64_t contracted = copy.shape().back(), columns = b.between(1, 7);
  const double gain = 8.0 * static_cast<double>(contracted);
  switch (b.below(4)) {
    case 0: {
      const Known* y = b.any([&](const Known& known) {
        return known.ndim() == 2 && known.shape()[0] == contracted && b.is_real(known, 8);
      });
      const int other = y ? y->number : b.leaf({{contracted, columns}});
      return Proposal{"matmul($0, $1)",
                      {copy.number, other},
                      [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; },
                      gain};
    }
    case 1: {
      const int weight = b.leaf({{columns, contracted}}), bias = b.leaf({{columns}});
      return Proposal{"linear($0, $1, $2)",
                      {copy.number, weight, bias},
                      [](const Tensors& in) { return Tensors{linear(in[0], in[1], in[2])}; },
                      gain};
    }
    case 2: {
      const int other = b.leaf({{contracted, 2, columns}});
      if (copy.ndim() != 2) return {};
      return Proposal{"einsum(\"ab,bcd->cad\", $0, $1)",
                      {copy.number, other},
                      [](const Tensors& in) { return Tensors{einsum("ab,bcd->cad", in[0], in[1])}; },
                      gain};
    }
    default:
      return Proposal{"matmul($0, $0.transpose(-1, -2))",
                      {copy.number},
                      [](const Tensors& in) { return Tensors{matmul(in[0], in[0].transpose(-1, -2))}; },
                      2 * gain};
  }
}

// --- reductions
std::vector<int64_t> some_dims(Builder& b, int64_t ndim) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < ndim; ++d) {
    if (b.chance(0.5)) dims.push_back(d);
  }
  if (dims.empty()) dims.push_back(b.between(0, ndim - 1));
  return dims;
}
Maybe reduction(Builder& b) {
  const Known* x = b.any([&](const Known& known) { return known.ndim() >= 1 && b.is_real(known, 30); });
  if (!x) return {};
  const std::vector<int64_t> dims = some_dims(b, x->ndim());
  const bool keepdim = b.chance(0.4);
  const std::string rest = "($0, " + text_of(dims) + (keepdim ? ", true)" : ")");
  double count = 1;
  for (int64_t d : dims) count *= static_cast<double>(x->shape()[d]);
  switch (b.below(3)) {
    case 0:
      return Proposal{
          "sum" + rest, {x->number}, [=](const Tensors& in) { return Tensors{sum(in[0], dims, keepdim)}; }, count};
    case 1:
      return Proposal{"sum_pending" + rest,
                      {x->number},
                      [=](const Tensors& in) { return Tensors{sum_pending(in[0], dims, keepdim)}; },
                      count};
    default:
      if (count == 0) return {};
      return Proposal{
          "mean" + rest, {x->number}, [=](const Tensors& in) { return Tensors{mean(in[0], dims, keepdim)}; }, 1};
  }
}
Maybe extreme(Builder& b) {
  const Known* x = b.any([&](const Known& known) {
    return known.ndim() >= 1 && b.facts(known.number).exact && known.shape().num_elements() > 0 &&
           known.dtype() != kBool;
  });
  if (!x) return {};
  const int64_t dim = b.between(0, x->ndim() - 1);
  const std::string d = std::to_string(dim);
  switch (b.below(4)) {
    case 0:
      return Proposal{.text = "amax($0, {" + d + "})",
                      .inputs = {x->number},
                      .run = [dim](const Tensors& in) { return Tensors{amax(in[0], {dim})}; },
                      .keeps_exact = true};
    case 1:
      return Proposal{.text = "argmax($0, " + d + ")",
                      .inputs = {x->number},
                      .run = [dim](const Tensors& in) { return Tensors{argmax(in[0], dim)}; },
                      .keeps_exact = true};
    case 2:
      return Proposal{.text = "amin($0, {" + d + "}, true)",
                      .inputs = {x->number},
                      .run = [dim](const Tensors& in) { return Tensors{amin(in[0], {dim}, true)}; },
                      .keeps_exact = true};
    default:
      return Proposal{.text = "max($0, " + d + ")",
                      .inputs = {x->number},
                      .run =
                          [dim](const Tensors& in) {
                            auto [values, indices] = max(in[0], dim);
                            return Tensors{values, indices};
                          },
                      .keeps_exact = true};
  }
}

// --- layers
Maybe layer(Builder& b) {
  const Known* x = b.any([&](const Known& known) { return known.ndim() >= 1 && b.is_real(known, 20); });
  if (!x) return {};
  const Known copy = *x;
  const int64_t dim = b.between(0, copy.ndim() - 1), width = copy.shape().back();
  switch (b.below(4)) {
    case 0:
      return Proposal{"softmax($0, " + std::to_string(dim) + ")",
                      {copy.number},
                      [dim](const Tensors& in) { return Tensors{softmax(in[0], dim)}; },
                      2};
    case 1:
      return Proposal{"log_softmax($0, " + std::to_string(dim) + ")",
                      {copy.number},
                      [dim](const Tensors& in) { return Tensors{log_softmax(in[0], dim)}; },
                      2};
    case 2: {
      const int weight = b.leaf({{width}}), bias = b.leaf({{width}});
      return Proposal{"layer_norm($0, {" + std::to_string(width) + "}, $1, $2, 0.1)",
                      {copy.number, weight, bias},
                      [width](const Tensors& in) { return Tensors{layer_norm(in[0], {width}, in[1], in[2], 0.1)}; },
                      30};
    }
    default: {
      const int weight = b.leaf({{width}});
      return Proposal{"rms_norm($0, $1, 0.1)",
                      {copy.number, weight},
                      [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], 0.1)}; },
                      30};
    }
  }
}
Maybe lookup(Builder& b) {
  const Known* x = b.any([&](const Known& known) {
    return known.ndim() == 2 && known.shape().num_elements() > 0 && b.is_real(known, 20);
  });
  if (!x) return {};
  const Known copy = *x;
  if (b.chance(0.5)) {
    const int ids = b.leaf({b.random_shape(1, 2), kInt64, SampleFill::kIndices, copy.shape()[0]});
    return Proposal{.text = "embedding($0, $1)",
                    .inputs = {ids, copy.number},
                    .run = [](const Tensors& in) { return Tensors{embedding(in[0], in[1])}; },
                    .keeps_exact = true};
  }
  const int targets = b.leaf({{copy.shape()[0]}, kInt64, SampleFill::kIndices, copy.shape()[1]});
  return Proposal{"cross_entropy($0, $1)",
                  {copy.number, targets},
                  [](const Tensors& in) { return Tensors{cross_entropy(in[0], in[1])}; },
                  3};
}

// --- whole numbers
Maybe whole_numbers(Builder& b) {
  const Known* x = b.any([](const Known& known) { return known.dtype() == kInt64 && known.largest < 1e6; });
  if (!x || b.chance(0.2)) {
    const int number = b.leaf({b.random_shape(1, 3), kInt64, SampleFill::kNormal, 0, false});
    x = &b.known(number);
  }
  const int a = x->number;
  const Shape shape = x->shape();
  const auto another = [&] { return b.leaf({shape, kInt64, SampleFill::kNormal, 0, false}); };
  switch (b.below(5)) {
    case 0:
      return Proposal{"$0 + $1", {a, another()}, [](const Tensors& in) { return Tensors{in[0] + in[1]}; }};
    case 1:
      return Proposal{"$0 * 3", {a}, [](const Tensors& in) { return Tensors{in[0] * 3}; }};
    case 2:
      return Proposal{"sum($0)", {a}, [](const Tensors& in) { return Tensors{sum(in[0])}; }};
    case 3:
      return Proposal{"$0 < $1", {a, another()}, [](const Tensors& in) { return Tensors{in[0] < in[1]}; }};
    default:
      return Proposal{"to($0, kFloat64)", {a}, [](const Tensors& in) { return Tensors{to(in[0], kFloat64)}; }};
  }
}

Maybe new_leaf(Builder& b) {
  b.leaf({b.random_shape(0, 4)});
  return {};
}
Maybe moved(Builder& b) {
  const Known* x = b.any([](const Known&) { return true; });
  if (x) b.redistribute(x->number);
  return {};
}

}  // namespace

// In rearrangements.cc.
Maybe rearrangement(Builder& b);

using Propose = Maybe (*)(Builder&);
constexpr Propose kProposals[] = {
    smooth,  jumping,       with_number,   two_operands,  two_operands,  choose,         product,
    product, reduction,     extreme,       layer,         lookup,        new_leaf,       moved,
    moved,   rearrangement, rearrangement, rearrangement, whole_numbers, propose_sample, propose_sample};

size_t num_proposals() { return std::size(kProposals); }
std::optional<Proposal> propose(size_t kind, Builder& builder) { return kProposals[kind](builder); }

std::optional<Proposal> propose_sample(Builder& builder) {
  const OperatorRegistry& registry = OperatorRegistry::global();
  const OperatorDef& op = registry.at(static_cast<uint16_t>(builder.below(registry.size())));
  if (op.samples == nullptr) return {};
  const std::vector<Sample> samples = op.samples();
  const size_t number = builder.below(samples.size());
  const Sample& sample = samples[number];
  if (sample.inputs.empty()) return {};
  Proposal proposal{.text = "sample " + std::to_string(number) + " of " + op.name + "(", .run = sample.call};
  for (const SampleInput& input : sample.inputs) {
    proposal.text += (proposal.inputs.empty() ? "$" : ", $") + std::to_string(proposal.inputs.size());
    proposal.inputs.push_back(
        builder.leaf({input.global_shape, input.dtype, input.fill, input.index_bound, input.differentiable}));
  }
  proposal.text += ")";
  // Rounding errors inside an operator grow by what it is; its sample says what it may be.
  proposal.gain = 100;
  proposal.tolerance = sample.tolerance;
  return proposal;
}

}  // namespace dtorch::test
