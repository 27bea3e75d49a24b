// Losses of vectors, all compositions: cosine_similarity, pairwise_distance, cosine_embedding_loss, triplet_margin_loss
// and normalize. Other dims: same on every one, with broadcasting. The vectors' dim may be sharded: the sums of
// products and powers over it are combined, a number a vector. No Partial input: none is linear.
#include <cmath>

#include "ops/loss/operators.h"
#include "ops/math/operators.h"
#include "ops/shape/functions.h"
#include "runtime/client/call_error.h"

namespace dtorch {
namespace loss {

Tensor p_norm(const Tensor& x, double p, int64_t dim, bool keepdim, const Where& place) {
  if (p == 1) return sum(abs(x, place), {dim}, keepdim, {}, place);
  if (std::isinf(p))
    return p > 0 ? amax(abs(x, place), {dim}, keepdim, place) : amin(abs(x, place), {dim}, keepdim, place);
  if (p == 0) return sum(to(ne(x, 0, place), x.dtype(), place), {dim}, keepdim, {}, place);
  const Tensor powers = p == 2 ? square(x, place) : pow(abs(x, place), p, place);
  const Tensor total = sum(powers, {dim}, keepdim, {}, place);
  // Roots have no finite slope at 0.
  const Tensor is_zero = eq(total, 0, place);
  const Tensor safe = masked_fill(total, is_zero, 1.0, place);
  const Tensor root = p == 2 ? sqrt(safe, place) : pow(safe, 1 / p, place);
  return masked_fill(root, is_zero, 0.0, place);
}

}  // namespace loss

namespace {

using namespace loss;

void need_floating_inputs(const char* op, std::initializer_list<const Tensor*> inputs, const Where& where) {
  for (const Tensor* input : inputs) {
    if (is_floating(input->dtype())) continue;
    throw at_line(DTypeError("[" + std::string(op) + "] got " + name_of(input->dtype()) +
                             ", allowed are floating types; convert it with to(kFloat32)"),
                  where);
  }
}

// 1 and -1.
Tensor signs(const Tensor& x) { return where(gt(x, 0), ones_like(x), full_like(x, -1)); }

std::vector<Sample> cosine_samples() {
  auto call = [](int64_t dim) {
    return [dim](const std::vector<Tensor>& in) { return std::vector<Tensor>{cosine_similarity(in[0], in[1], dim)}; };
  };
  return {{.name = "rows, uneven", .inputs = {{{5, 3}}, {{5, 3}}}, .call = call(1)},
          {.name = "columns, broadcast", .inputs = {{{5, 3}, kFloat64}, {{5, 1}, kFloat64}}, .call = call(0)},
          {.name = "a dim of size 1", .inputs = {{{1, 4}, kFloat64}, {{1, 4}, kFloat64}}, .call = call(-1)}};
}
std::vector<Sample> distance_samples() {
  auto call = [](double p, bool keepdim) {
    return [=](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{pairwise_distance(in[0], in[1], p, 1e-6, keepdim)};
    };
  };
  return {
      {.name = "uneven", .inputs = {{{5, 3}}, {{5, 3}}}, .call = call(2, false)},
      {.name = "p = 1, broadcast", .inputs = {{{5, 3}, kFloat64}, {{3}, kFloat64}}, .call = call(1, true)},
      {.name = "p = 3, a dim of size 1", .inputs = {{{1, 4}, kFloat64}, {{1, 4}, kFloat64}}, .call = call(3, false)}};
}
std::vector<Sample> cosine_embedding_samples() {
  auto call = [](Reduction reduction) {
    return [reduction](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{cosine_embedding_loss(in[0], in[1], signs(in[2]), 0.1, reduction)};
    };
  };
  const SampleInput target{{5}, kFloat64, SampleFill::kNormal, 0, false},
      one{{1}, kFloat32, SampleFill::kNormal, 0, false};
  return {{.name = "mean, uneven",
           .inputs = {{{5, 3}, kFloat64}, {{5, 3}, kFloat64}, target},
           .call = call(Reduction::kMean)},
          {.name = "rows, a dim of size 1", .inputs = {{{1, 4}}, {{1, 4}}, one}, .call = call(Reduction::kNone)}};
}
std::vector<Sample> triplet_samples() {
  auto call = [](TripletMarginOptions options) {
    return [options](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{triplet_margin_loss(in[0], in[1], in[2], options)};
    };
  };
  return {{.name = "mean, uneven", .inputs = {{{5, 3}}, {{5, 3}}, {{5, 3}}}, .call = call({}), .tolerance = 2e-5},
          {.name = "rows, swap, a dim of size 1",
           .inputs = {{{1, 4}, kFloat64}, {{1, 4}, kFloat64}, {{1, 4}, kFloat64}},
           .call = call({.margin = 2, .swap = true, .reduction = Reduction::kNone}),
           .tolerance = 1e-11}};
}
std::vector<Sample> normalize_samples() {
  auto call = [](double p, int64_t dim) {
    return [=](const std::vector<Tensor>& in) { return std::vector<Tensor>{normalize(in[0], p, dim)}; };
  };
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = call(2, 1)},
          {.name = "p = 1, a dim of size 1", .inputs = {{{3, 1, 4}, kFloat64}}, .call = call(1, 0)}};
}

}  // namespace

constinit OperatorDef cosine_similarity_op = {.name = "cosine_similarity",
                                              .signature = "cosine_similarity(x1, x2, dim, eps) -> Tensor",
                                              .samples = cosine_samples,
                                              .placement_class = PlacementClass::kCombines};
constinit OperatorDef pairwise_distance_op = {.name = "pairwise_distance",
                                              .signature = "pairwise_distance(x1, x2, p, eps, keepdim) -> Tensor",
                                              .samples = distance_samples,
                                              .placement_class = PlacementClass::kCombines};
constinit OperatorDef cosine_embedding_loss_op = {
    .name = "cosine_embedding_loss",
    .signature = "cosine_embedding_loss(input1, input2, target, margin, reduction) -> Tensor",
    .samples = cosine_embedding_samples,
    .placement_class = PlacementClass::kCombines};
constinit OperatorDef triplet_margin_loss_op = {
    .name = "triplet_margin_loss",
    .signature = "triplet_margin_loss(anchor, positive, negative, options) -> Tensor",
    .samples = triplet_samples,
    .placement_class = PlacementClass::kCombines};
constinit OperatorDef normalize_op = {.name = "normalize",
                                      .signature = "normalize(x, p, dim, eps) -> Tensor",
                                      .samples = normalize_samples,
                                      .placement_class = PlacementClass::kCombines};

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps, Where where) {
  SourceScope scope(where);
  need_floating_inputs("cosine_similarity", {&x1, &x2}, where);
  const Shape shape = broadcast_shapes(x1.shape(), x2.shape(), "cosine_similarity");
  dim = normalize_dim(dim, shape.ndim(), "cosine_similarity", where);
  const std::vector<int64_t> sizes(shape.begin(), shape.end());
  // Division by a norm below eps has no slope of the norm.
  const auto scaled = [&](const Tensor& x) {
    const Tensor whole = x.shape() == shape ? x : expand(x, sizes, where);
    return div(whole, clamp(p_norm(whole, 2, dim, true, where), eps, {}, where), where);
  };
  return sum(mul(scaled(x1), scaled(x2), where), {dim}, false, {}, where);
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim, Where where) {
  SourceScope scope(where);
  need_floating_inputs("pairwise_distance", {&x1, &x2}, where);
  const Tensor difference = add(sub(x1, x2, where), eps, where);
  return p_norm(difference, p, normalize_dim(-1, difference.ndim(), "pairwise_distance", where), keepdim, where);
}

Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin,
                             Reduction reduction, Where place) {
  SourceScope scope(place);
  const int64_t dim = target.ndim();
  if (dim > 1 || input1.ndim() != dim + 1 || input2.ndim() != dim + 1) {
    throw at_line(ShapeError("[cosine_embedding_loss] inputs " + input1.shape().str() + " and " + input2.shape().str() +
                             " with target " + target.shape().str() + ", expected [N, D] with [N], or [D] with []"),
                  place);
  }
  constexpr double kEpsilon = 1e-12;  // PyTorch's
  const auto dot = [&](const Tensor& a, const Tensor& b) { return sum(mul(a, b, place), {dim}, false, {}, place); };
  const Tensor squares1 = add(dot(input1, input1), kEpsilon, place),
               squares2 = add(dot(input2, input2), kEpsilon, place);
  const Tensor cosine = div(dot(input1, input2), sqrt(mul(squares1, squares2, place), place), place);
  const Tensor near = where(eq(target, 1, place), sub(1, cosine, place), 0.0, place);
  const Tensor far = clamp(sub(cosine, margin, place), 0.0, {}, place);
  return reduced_loss(add(near, where(eq(target, -1, place), far, 0.0, place), place), reduction, place);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options, Where where) {
  SourceScope scope(where);
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, options.p, options.eps, false, where);
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (options.swap) far = minimum(far, distance(positive, negative), where);
  const Tensor losses = clamp(sub(add(near, options.margin, where), far, where), 0.0, {}, where);
  return reduced_loss(losses, options.reduction, where);
}

Tensor normalize(const Tensor& x, double p, int64_t dim, double eps, Where where) {
  SourceScope scope(where);
  need_floating_inputs("normalize", {&x}, where);
  dim = normalize_dim(dim, x.ndim(), "normalize", where);
  return div(x, clamp(p_norm(x, p, dim, true, where), eps, {}, where), where);
}

}  // namespace dtorch
