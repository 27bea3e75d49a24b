// feature_dropout (dropout1d, 2d, 3d) and alpha_dropout: compositions. feature_dropout is x times the dropout of ones
// [N, C, 1, ...], which follows x's placements in its first two dims; alpha_dropout scales and shifts by a mask of x's
// placements. For a given mask both let a Partial(sum) x pass; any dim may be sharded. The masks are functions of
// (seed, call, global element number).
#include <cmath>

#include "ops/math/functions.h"
#include "ops/nn/operators.h"
#include "runtime/client/call_error.h"
#include "runtime/client/draw_scope.h"

namespace dtorch {
namespace {

void check_probability(const char* op, double p, const Where& where) {
  if (p >= 0 && p <= 1) return;
  throw at_line(UserError("[" + std::string(op) + "] p is " + std::to_string(p) + ", allowed 0 to 1"), where);
}

// x times the dropout of ones that stand for its first `kept_dims` dims.
Tensor drop_features(const char* op, const Tensor& x, int64_t kept_dims, double p, bool training, const Where& where) {
  check_probability(op, p, where);
  if (x.ndim() < kept_dims) {
    throw at_line(ShapeError("[" + std::string(op) + "] x has shape " + x.shape().str() + ", expected [N, C, ...]"),
                  where);
  }
  if (!training || p == 0) return x;
  SourceScope scope(where);
  const DrawScope draw(x);
  Shape shape = x.shape();
  Placements placements = x.placements();
  for (int64_t d = kept_dims; d < shape.ndim(); ++d) shape[d] = 1;
  for (Placement& placement : placements) {
    if (!placement.is_shard() || placement.dim >= kept_dims) placement = Replicate();
  }
  const Layout layout = x.layout().with_placements(placements, x.ndim());
  return mul(x, dropout(full_with_layout(shape, 1, x.dtype(), layout, where), p, true, where), where);
}

Tensor drop_channels(const char* op, const Tensor& x, int64_t ndim, double p, bool training, const Where& where) {
  if (x.ndim() != ndim && x.ndim() != ndim - 1) {
    throw at_line(ShapeError("[" + std::string(op) + "] x has shape " + x.shape().str() + ", expected " +
                             std::to_string(ndim) + " or " + std::to_string(ndim - 1) + " dims"),
                  where);
  }
  return drop_features(op, x, x.ndim() == ndim ? 2 : 1, p, training, where);
}

std::vector<Sample> feature_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{feature_dropout(in[0], 0.4)}; };
  return {{.name = "uneven", .inputs = {{{5, 3, 2}}}, .call = call},
          {.name = "one channel, float64",
           .inputs = {{{3, 1, 4}, kFloat64}},
           .call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{dropout1d(in[0], 0.5)}; }}};
}
std::vector<Sample> alpha_samples() {
  auto call = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{alpha_dropout(in[0], 0.4)}; };
  return {{.name = "uneven", .inputs = {{{5, 3}}}, .call = call},
          {.name = "a dim of size 1", .inputs = {{{4, 1}, kFloat64}}, .call = call}};
}

}  // namespace

constinit OperatorDef feature_dropout_op = {.name = "feature_dropout",
                                            .signature = "feature_dropout(x, p, training) -> Tensor",
                                            .samples = feature_samples,
                                            .linear_in = "x"};
constinit OperatorDef alpha_dropout_op = {
    .name = "alpha_dropout", .signature = "alpha_dropout(x, p, training) -> Tensor", .samples = alpha_samples};

Tensor feature_dropout(const Tensor& x, double p, bool training, Where where) {
  return drop_features("feature_dropout", x, 2, p, training, where);
}
Tensor dropout1d(const Tensor& x, double p, bool training, Where where) {
  return drop_channels("dropout1d", x, 3, p, training, where);
}
// Of three dims the first two are [N, C], as in PyTorch.
Tensor dropout2d(const Tensor& x, double p, bool training, Where where) {
  if (x.ndim() == 3) return drop_features("dropout2d", x, 2, p, training, where);
  return drop_channels("dropout2d", x, 4, p, training, where);
}
Tensor dropout3d(const Tensor& x, double p, bool training, Where where) {
  return drop_channels("dropout3d", x, 5, p, training, where);
}

Tensor alpha_dropout(const Tensor& x, double p, bool training, Where where) {
  check_probability("alpha_dropout", p, where);
  if (!training || p == 0) return x;
  SourceScope scope(where);
  if (!is_floating(x.dtype())) {
    throw at_line(DTypeError("[alpha_dropout] x is " + std::string(name_of(x.dtype())) +
                             ", allowed are floating types; convert it with to(kFloat32)"),
                  where);
  }
  if (p == 1) return mul(x, 0.0, where);
  const DrawScope draw(x);
  constexpr double kAlpha = 1.7580993408473766;  // minus SELU's lower limit
  const double scale = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const Tensor kept = to(lt(rand_like(x, kFloat32, where), 1 - p, where), x.dtype(), where);
  const Tensor shift = add(mul(sub(kept, 1, where), kAlpha * scale, where), kAlpha * scale * p, where);
  return add(mul(x, mul(kept, scale, where), where), shift, where);
}

}  // namespace dtorch
